//! The fake libibverbs is found beside the tests, exports all its functions, and does what a script says.

use std::ffi::c_int;

use hmc_tests::fake_ibv::{FakeIbv, VerbsFate, file};
use hmc_vendor_ibverbs::abi::ibv_device;
use hmc_vendor_ibverbs::api::SIGNATURES;

type GetDeviceList = unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device;
type FreeDeviceList = unsafe extern "C" fn(*mut *mut ibv_device);

#[test]
fn the_fake_libibverbs_has_its_functions_and_follows_a_script() {
    let fake = FakeIbv::take();
    // SAFETY: the fake libibverbs runs nothing when it is loaded.
    let library = unsafe { libloading::Library::new(file()) }.expect("it was loaded before");
    for (name, ..) in SIGNATURES {
        // SAFETY: only its address is looked up.
        assert!(unsafe { library.get::<*const u8>(*name) }.is_ok(), "{name}");
    }
    // SAFETY: the type is that of libibverbs.
    let list = unsafe { library.get::<GetDeviceList>("ibv_get_device_list") }.expect("seen above");
    // SAFETY: as above.
    let free =
        unsafe { library.get::<FreeDeviceList>("ibv_free_device_list") }.expect("seen above");
    fake.set("devices", 3);
    fake.rule("ibv_get_device_list", 2, VerbsFate::Refused(libc::ENOSYS));
    let mut count = 0;
    // SAFETY: the number may be written.
    let devices = unsafe { list(&raw mut count) };
    assert_eq!((count, fake.count("lists")), (3, 1));
    // SAFETY: made above, freed once.
    unsafe { free(devices) };
    // SAFETY: the number may be written.
    assert!(unsafe { list(&raw mut count) }.is_null());
    assert_eq!(fake.calls("ibv_get_device_list"), 2);
    fake.assert_clean();
}
