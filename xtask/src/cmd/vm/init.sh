#!/bin/busybox sh
# /init of the guest. It mounts the host's root read-only, with the guest's tools and a tmpfs above it, and then executes the
# program that runs the command (guest.rs).
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
b=/bin/busybox

fail() {
    echo "hmc-vm: $1"
    $b poweroff -f
}

$b mount -t devtmpfs dev /dev || fail "no /dev"
exec >/dev/console 2>&1
$b mount -t proc proc /proc || fail "no /proc"
$b mount -t sysfs sys /sys || fail "no /sys"

while read -r module; do
    $b insmod "/modules/$module.ko" || fail "the module $module cannot be loaded"
done </modules/order

share() {
    $b mount -t 9p -o "trans=virtio,version=9p2000.L,msize=512000,$3" "$1" "$2" || fail "no share $1"
}
share run /run cache=none
. /run/start
share host /host ro,cache=loose
share tools /tools ro,cache=loose
$b mount -t tmpfs -o mode=0755 over /over || fail "no tmpfs"
$b mkdir /over/upper /over/work
$b mount -t overlay -o lowerdir=/tools:/host,upperdir=/over/upper,workdir=/over/work root /root ||
    fail "no root file system"

for folder in dev proc sys; do
    $b mkdir -p "/root/$folder"
    $b mount --move "/$folder" "/root/$folder" || fail "no /$folder in the root file system"
done
$b mkdir -p /root/dev/shm /root/dev/pts
$b mount -t tmpfs -o mode=1777 shm /root/dev/shm || fail "no /dev/shm"
$b mount -t devpts -o mode=0620,ptmxmode=0666 pts /root/dev/pts || fail "no /dev/pts"
$b ln -s /proc/self/fd /root/dev/fd
for number in 0:stdin 1:stdout 2:stderr; do
    $b ln -s "/proc/self/fd/${number%%:*}" "/root/dev/${number#*:}"
done

# The run folder comes last, since it may be below the output folder.
$b mkdir -p "/root$out"
share out "/root$out" cache=mmap
$b mkdir -p "/root$run"
$b mount --move /run "/root$run" || fail "no run folder"
exec $b switch_root /root "$run/guest" vm-guest "$run"
fail "the guest program cannot be started"
