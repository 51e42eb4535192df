# Runs in the guest: a long file from rxe1 to rxe0, in the middle of which the fabric fails, and a file once it works again. The control
# connection is not of the fabric, and goes on. `down`: the sender's interface goes down. `silent`: no packet arrives any more, in neither
# direction, and nothing says so.
set -eu
hmc=$1
failure=$2
counter=/sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts
state=/sys/class/infiniband/rxe1/ports/1/state
dir=$(mktemp -d /tmp/fabric-failure.XXXXXX)
cd "$dir"
mkdir in

serve() { HMC_RDMA_PORT=rxe0:1 HMC_RDMA_GID=1 exec "$hmc" serve --json --once --into in --listen "127.0.0.1:$1"; }
put() { HMC_RDMA_PORT=rxe1:1 HMC_RDMA_GID=1 "$hmc" put --json --via rdma --to "tcp://127.0.0.1:$1" "$2"; }
now() { cut -d. -f1 /proc/uptime; }
until_listening() { until [ -s "$1" ]; do sleep 0.1; done; }
# Ends the script if that began more than so many seconds ago.
within() {
    if [ $(($(now) - $2)) -gt "$1" ]; then
        echo "that is too late: more than $1 s" >&2
        exit 1
    fi
}
# To which address of the link layer each end sends.
neighbours() {
    ip neigh replace 10.77.0.2 lladdr "$2" dev hmc0 nud permanent
    ip neigh replace 10.77.0.1 lladdr "$1" dev hmc1 nud permanent
}
fail() {
    case $failure in
    down) ip link set hmc1 down ;;
    # Nobody has these.
    silent) neighbours 02:00:00:00:00:08 02:00:00:00:00:09 ;;
    esac
}
restore() {
    ip link set hmc1 up
    neighbours 02:00:00:00:00:01 02:00:00:00:00:02
    # What went with the carrier.
    ip route replace 10.77.0.2/32 dev hmc0 src 10.77.0.1 table 101
    ip route replace 10.77.0.1/32 dev hmc1 src 10.77.0.2 table 102
    until grep -q ACTIVE "$state"; do sleep 0.1; done
}
trap restore EXIT

yes hmc | head -c 256M >long
serve 7101 >listening1 2>receiver.err &
receiver=$!
until_listening listening1
before=$(cat "$counter")
put 7101 long >sent 2>sender.err &
sender=$!
until [ $(($(cat "$counter") - before)) -gt 500 ]; do
    kill -0 "$sender" || exit 1
    sleep 0.1
done
fail
failed=$(now)
if wait "$sender"; then
    echo "the sender succeeded without a fabric" >&2
    exit 1
fi
if wait "$receiver"; then
    echo "the receiver has received without a fabric" >&2
    exit 1
fi
echo "$(($(now) - failed)) s after the failure:"
tail -n 1 sender.err receiver.err
within 20 "$failed"
# soft-RoCE finds no way for the packet where the interface is down: status 2. A NIC would send again, as here in silence.
case $failure in
down) says="transport error 2\|the peer is gone" ;;
silent) says="the peer is gone" ;;
esac
grep -q "$says" sender.err || exit 1
grep -q "the peer is gone" receiver.err || exit 1

head -c 4M /dev/urandom >short
serve 7102 >listening2 2>receiver.err &
receiver=$!
until_listening listening2
failed=$(now)
if put 7102 short >sent 2>sender.err; then
    echo "a file was moved without a fabric" >&2
    exit 1
fi
echo "a new link, after $(($(now) - failed)) s:"
tail -n 1 sender.err
within 20 "$failed"
if [ "$failure" = down ]; then
    grep -q "rxe1" sender.err || exit 1
fi
kill "$receiver" 2>/dev/null || true
wait "$receiver" || true

restore
serve 7103 >listening3 &
receiver=$!
until_listening listening3
put 7103 short >sent
wait "$receiver"
cmp short in/short
