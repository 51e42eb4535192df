//! The kernel image. QEMU boots the decompressed kernel inside of it directly, so the guest does not spend time on decompression.

use super::compression::Compression;
use std::path::Path;

/// Offsets of fields of the setup header (Linux, Documentation/arch/x86/boot.rst).
const SETUP_SECTORS: usize = 0x1f1;
const MAGIC: usize = 0x202;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;
/// Size of a sector in bytes.
const SECTOR: usize = 512;
/// Size of the decompressed kernel's length, which follows the compressed kernel.
const TRAILER: usize = 4;
/// Type (XEN_ELFNOTE_PHYS32_ENTRY) and owner of the ELF note with the kernel's 32-bit entry point, which QEMU requires.
const NOTE: &[u8] = b"\x12\0\0\0Xen\0";

/// Returns the compressed kernel in an image, or `None` if the bytes are not a kernel image.
fn payload(image: &[u8]) -> Option<&[u8]> {
    if image.get(MAGIC..)?.get(..4)? != b"HdrS" {
        return None;
    }
    let word = |at: usize| {
        let bytes = image.get(at..)?.first_chunk::<4>()?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    let sectors = usize::from(*image.get(SETUP_SECTORS)?);
    let start = sectors.checked_add(1)?.checked_mul(SECTOR)?.checked_add(word(PAYLOAD_OFFSET)?)?;
    let length = word(PAYLOAD_LENGTH)?.checked_sub(TRAILER)?;
    image.get(start..)?.get(..length)
}

/// Returns the decompressed kernel of an image file, or `None` if QEMU cannot boot it directly. `scratch` names a temporary file.
pub(super) fn decompressed(image: &Path, scratch: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(image).ok()?;
    let payload = payload(&bytes)?;
    let compression = Compression::of(payload)?;
    std::fs::write(scratch, payload).ok()?;
    let kernel = compression.decompress(scratch).ok()?;
    let is_bootable =
        kernel.starts_with(b"\x7fELF") && kernel.windows(NOTE.len()).any(|w| w == NOTE);
    is_bootable.then_some(kernel)
}

#[cfg(test)]
mod tests {
    use super::payload;

    fn image(length: u32) -> Vec<u8> {
        let mut image = vec![0; 2 * 512];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&3_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        image.extend_from_slice(b"xxxpayloadSIZE");
        image
    }

    #[test]
    fn the_payload_ends_before_its_trailer() {
        assert_eq!(payload(&image(11)), Some(&b"payload"[..]));
    }

    #[test]
    fn incomplete_and_other_files_have_no_payload() {
        assert_eq!(payload(&image(12)).map(<[u8]>::len), Some(8));
        assert_eq!(payload(&image(16)), None);
        assert_eq!(payload(&image(3)), None);
        assert_eq!(payload(&image(11)[..600]), None);
        assert_eq!(payload(b"\x7fELF"), None);
    }
}
