#!/bin/bash
# Runs in the guest: a plane with soft-RoCE devices, programs that attach to them, and a device that goes and comes.
#
#   scripts/rxe-vm/test runs it; it closes with "test result: N passed; N failed" (as the test programs do)
#
# Sessions at a device are stock programs of infiniband-diags under madctl run. QP1 of soft-RoCE carries GMPs only and has no
# LIDs, so the other device is given one (peer=LID@GID).
export MADPLANE_RUNTIME_DIR=/tmp/madplane
passed=0 failed=0
log=/tmp/out

ok() { # claim, command...
    local claim=$1
    shift
    if "$@" >$log 2>&1; then
        passed=$((passed + 1))
        echo "test $claim ... ok"
    else
        failed=$((failed + 1))
        echo "test $claim ... FAILED"
        sed 's/^/    /' $log
        tail -n 5 /tmp/madplane/*/*.log 2>/dev/null | sed 's/^/    log: /'
    fi
}

# command... prints a line that holds `text`
says() {
    local text=$1
    shift
    "$@" >/tmp/said 2>&1
    cat /tmp/said
    grep -qF -- "$text" /tmp/said
}

# the same, sooner or later
will_say() {
    for _ in {1..300}; do
        says "$@" >/dev/null && return 0
        sleep 0.1
    done
    says "$@"
}

device() { madctl devices --format json; }
up() { madctl up --fabric builtin:ring,switches=2 --no-huge --overprovisioned "$@"; }
down() { madctl down; }
ping_from() { timeout 60 madctl run --at "$1" -- ibping -c 5 "$2"; }
all_pongs() { ping_from "$@" | tee $log && grep -q '5 received, 0% packet loss' $log; }

ok 'devices of the machine are listed without a plane' says '"node": "/dev/infiniband/umad0"' device
ok 'what names no device keeps a plane from starting' says 'names no device' up --device roce:rxe0
ok 'nobody is told that it started' says 'is not running' down

# over the kernel's device, both ends in one plane
ok 'a plane opens both devices' up --device umad:rxe0,peer=2@fe80::ff:fe00:2 --device umad:rxe1
ok 'it shows that they are up' says 'rxe1 port 1: up by umad' madctl status
ok 'a device that it does not have is named' says 'the plane has no device "rxe9"; it has rxe0:1, rxe1:1' \
    madctl run --at device:rxe9 -- true
ok 'a program sees the port that the kernel shows' says 'Link layer: Ethernet' madctl run --at device:rxe0 -- ibstat
ok 'and no other' says 'CA '"'rxe0'" madctl run --at device:rxe0 -- ibstat
madctl run --at device:rxe1 -- ibping -S >/tmp/server 2>&1 &
server=$!
will_say '"agents": 2' madctl sessions list --format json >/dev/null
ok 'stock ibping gets its answers' all_pongs device:rxe0 2
ok 'the session is listed at its device' says 'device rxe1' madctl sessions list
ok 'MADs are counted' says '"received": 5' madctl devices --format json
ok 'a session in the fabric does not see the device' says 'Link layer: InfiniBand' madctl run -- ibstat
ok 'auto: is the device if it works' all_pongs auto:rxe0 2

# the device goes while it is busy
madctl run --at device:rxe0 -- ibping -f 2 >/dev/null 2>&1 &
flood=$!
sleep 1
ok 'a device is removed while it is busy' timeout 60 rdma link delete rxe0
ok 'the plane says so' will_say 'rxe0 port 1: unavailable, because' madctl status
ok 'a program is refused with the reason' will_say \
    'device rxe0: unavailable, because there is no RDMA device "rxe0"; there is rxe1' \
    madctl run --at device:rxe0 -- true
ok 'auto: is the fabric then' says 'mlx5_0' madctl run --at auto:rxe0 -- ibstat -l
ok 'control has it in its log' grep -q 'device rxe0 is down: it was removed' /tmp/madplane/default/madctld.log
ok 'the plane lives' says 'rxe1 port 1: up by umad' madctl status
ok 'the device comes back' rdma link add rxe0 type rxe netdev net0
ok 'and is up again' will_say 'rxe0 port 1: up by umad' madctl status
ok 'and in the log of control' will_say 'device rxe0 is up' cat /tmp/madplane/default/madctld.log
kill $flood
wait $flood 2>/dev/null
ok 'programs go on with it' all_pongs device:rxe0 2
ip link set net0 down
ok 'a link that goes down is seen' will_say 'rxe0 port 1: down by umad' madctl status
ip link set net0 up
ok 'and that it comes up' will_say 'rxe0 port 1: up by umad' madctl status
kill $server
wait $server 2>/dev/null
ok 'agents of a program that has ended are taken away' sh -c 'madctl sessions list | grep -q "no sessions"'
ok 'the plane stops' down

# a worker that polls; a queue pair of the plane's own asks the kernel's agent of the other device
ok 'a plane that polls opens a queue pair and a device' madctl up --fabric builtin:ring,switches=2 --no-huge --cores 1 --device verbs:rxe0,peer=2@fe80::ff:fe00:2 --device umad:rxe1
ok 'its worker has a core' says 'polling' madctl status
ok 'it shows both' says 'rxe0 port 1: up by verbs' madctl status
madctl run --at device:rxe1 -- ibping -S >/tmp/server 2>&1 &
server=$!
will_say '"agents": 2' madctl sessions list --format json >/dev/null
ok 'stock ibping goes by the queue pair' all_pongs device:rxe0 2
ok 'SMPs do not' says 'ibwarn' madctl run --at device:rxe0 -- smpquery nodeinfo 2
ok 'its device is removed' timeout 60 rdma link delete rxe0
ok 'the plane lets it go' will_say 'rxe0 port 1: unavailable, because' madctl status
rdma link add rxe0 type rxe netdev net0
ok 'and opens the queue pair again' will_say 'rxe0 port 1: up by verbs' madctl status
ok 'which works' all_pongs device:rxe0 2
kill $server
wait $server 2>/dev/null
ok 'that plane stops' down

# what may not be, one line each
mkdir -m 777 /tmp/nobody
nobody() { setpriv --reuid 65534 --regid 65534 --clear-groups env MADPLANE_RUNTIME_DIR=/tmp/nobody MADPLANE_SHM_DIR=/tmp/nobody "$@"; }
ok 'a user without rights to the devices has a plane' nobody madctl up --fabric builtin:ring,switches=2 --no-huge \
    --overprovisioned --device umad:rxe0
ok 'and is told which file it is' says 'unavailable, because this user may not open /dev/infiniband/umad0' nobody madctl status
ok 'that plane stops too' nobody madctl down
ok 'so has a user that may not lock memory' nobody bash -c 'ulimit -l 64; exec madctl up --fabric builtin:ring,switches=2 \
    --no-huge --overprovisioned --device verbs:rxe0'
ok 'and is told how much is needed' says 'unavailable, because 240 KiB of locked memory are needed and 64 KiB are allowed' \
    nobody madctl status
ok 'and stops' nobody madctl down
ok 'a device that is not there is no reason not to start' up --device umad:rxe7
ok 'and is named' says 'rxe7 port 1: unavailable, because there is no RDMA device "rxe7"; there are rxe0, rxe1' madctl status
ok 'the last one stops' down

echo "test result: $([ $failed -eq 0 ] && echo ok || echo FAILED). $passed passed; $failed failed;"
[ $failed -eq 0 ]
