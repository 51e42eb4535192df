# Runs in each of two guests: a file from guest 1 to guest 0, and then a long file, during which the guest that $2 names ends
# without any notice. The long file ends with an error at the other one.
set -eu
hmc=$1
victim=$2
counters=/sys/class/infiniband/rxe0/ports/1/hw_counters

serve() { "$hmc" serve --json --once --into "$1" --listen "10.77.0.1:$2" --insecure; }
put() { "$hmc" put --json --via rdma --to "tcp://10.77.0.1:$2" --insecure "$1"; }
until_listening() { until [ -s "$1" ]; do sleep 0.2; done; }
# Returns when the device has counted 500 more packets. The guest ends with its script, and the transfer's process with it.
until_moving() {
    before=$(cat "$counters/$1")
    while [ $(($(cat "$counters/$1") - before)) -lt 500 ]; do
        kill -0 "$!" || exit 1
        sleep 0.1
    done
}
must_fail() {
    if "$@"; then
        echo "the transfer succeeded" >&2
        exit 1
    fi
}

cd "$HMC_VM_OUT"
mkdir /tmp/pair
case $HMC_VM_GUEST.$victim in
0.*)
    serve /tmp/pair 7001 >received
    cp /tmp/pair/file copy
    ;;
1.*)
    until_listening received
    put file 7001 >sent
    cat "$counters/sent_pkts" >packets
    yes hmc | head -c 256M >/tmp/pair/long
    until_listening listening
    ;;
esac
case $HMC_VM_GUEST.$victim in
0.receiver)
    serve /tmp/pair 7002 >listening &
    until_moving rcvd_pkts
    ;;
1.receiver) must_fail put /tmp/pair/long 7002 2>error ;;
0.sender) must_fail serve /tmp/pair 7002 >listening 2>error ;;
1.sender)
    put /tmp/pair/long 7002 &
    until_moving sent_pkts
    ;;
esac
