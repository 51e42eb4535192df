# Runs in the guest: a long file from rxe1 to rxe0, in the middle of which the cable is pulled, and a file once it is back.
set -eu
hmc=$1
counter=/sys/class/infiniband/rxe1/ports/1/hw_counters/sent_pkts
state=/sys/class/infiniband/rxe1/ports/1/state
dir=$(mktemp -d /tmp/link-down.XXXXXX)
cd "$dir"
mkdir in

serve() { HMC_RDMA_PORT=rxe0:1 HMC_RDMA_GID=1 exec "$hmc" serve --json --once --into in --listen "127.0.0.1:$1"; }
put() { HMC_RDMA_PORT=rxe1:1 HMC_RDMA_GID=1 "$hmc" put --json --via rdma --to "tcp://127.0.0.1:$1" "$2"; }
now() { cut -d. -f1 /proc/uptime; }
until_listening() { until [ -s "$1" ]; do sleep 0.1; done; }
plug_in() {
    ip link set hmc1 up
    # What went with the carrier.
    ip neigh replace 10.77.0.2 lladdr 02:00:00:00:00:02 dev hmc0 nud permanent
    ip neigh replace 10.77.0.1 lladdr 02:00:00:00:00:01 dev hmc1 nud permanent
    ip route replace 10.77.0.2/32 dev hmc0 src 10.77.0.1 table 101
    ip route replace 10.77.0.1/32 dev hmc1 src 10.77.0.2 table 102
    until grep -q ACTIVE "$state"; do sleep 0.1; done
}
trap plug_in EXIT

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
ip link set hmc1 down
pulled=$(now)
if wait "$sender"; then
    echo "the sender succeeded without a cable" >&2
    exit 1
fi
if wait "$receiver"; then
    echo "the receiver has received without a cable" >&2
    exit 1
fi
echo "$(($(now) - pulled)) s after the cable was pulled:"
tail -n 1 sender.err receiver.err
if [ $(($(now) - pulled)) -gt 20 ]; then
    echo "that is too late" >&2
    exit 1
fi
# soft-RoCE finds no way for the packet: status 2. A NIC would send again until the peer counts as gone.
grep -q "transport error 2\|the peer is gone" sender.err || exit 1
grep -q "the peer is gone" receiver.err || exit 1

head -c 4M /dev/urandom >short
serve 7102 >listening2 2>/dev/null &
receiver=$!
until_listening listening2
if put 7102 short >sent 2>sender.err; then
    echo "a port that is down was used" >&2
    exit 1
fi
tail -n 1 sender.err
grep -q "rxe1" sender.err || exit 1
kill "$receiver"
wait "$receiver" || true

plug_in
serve 7103 >listening3 &
receiver=$!
until_listening listening3
put 7103 short >sent
wait "$receiver"
cmp short in/short
