#!/bin/bash
# SPDX-License-Identifier: MIT
# Whom an elastic job trusts: two users side by side see and order only their own; a stranger on a
# dead controller's port orders nobody; a companion with other numerics is refused; no log holds a
# credential or a value of a job's environment.
# shellcheck disable=SC2016,SC2317 # cases are called by name; their scripts expand in the job
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/e2e/flextrain_lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/flextrain_lib.sh"

# Jobs on the nodes named in low-isa get a CPU library limited to an older instruction set.
mkdir -p "$VC_ROOT"
prolog=$VC_ROOT/home/prolog
extra=$(mktemp)
echo "TaskProlog=$prolog" >"$extra"
flextrain_cluster "$(flextrain_conf Gate=none RemainingTimeGuard=no RetryAfterFailureSeconds=5)" --gpus 1 --conf "$extra"
rm -f "$extra"
eval "$(vc env)"
: >"$VC_ROOT/home/low-isa"
cat >"$prolog" <<SH
#!/bin/bash
if grep -qx "\$(hostname)" $VC_ROOT/home/low-isa; then echo "export ONEDNN_MAX_CPU_ISA=SSE41"; fi
SH
chmod 755 "$prolog"
prepare_training alice
prepare_training bob
pace="--set injection.layer_seconds=0.001"
secret=hunter2-5f3c9a

test_two_users() {
  local a b
  # shellcheck disable=SC2086
  a=$(train alice side "--elastic --elastic-max=3 -N1 --gres=gpu:1 --export=ALL,WANDB_API_KEY=$secret" $pace)
  # shellcheck disable=SC2086
  b=$(train bob side "--elastic --elastic-max=3 -N1 --gres=gpu:1" $pace)
  wait_grown alice "$a"
  wait_grown bob "$b"
  assert_eq "$a" "$(sflex_rows alice jobs | jq -r .job_id)" "jobs that alice sees"
  assert_eq "$b" "$(sflex_rows bob jobs | jq -r .job_id)" "jobs that bob sees"
  assert_eq "$a $b" "$(sflex_rows slurm jobs | jq -r .job_id | sort -n | xargs)" "jobs that an administrator sees"
  assert_eq "" "$(sflex_rows bob table "$a" 2>/dev/null)" "alice's table in bob's eyes"
  assert_eq "" "$(sflex_rows bob decisions -j "$a" 2>/dev/null)" "alice's decisions in bob's eyes"
  assert_eq "" "$(sflex_rows bob companions | jq -r "select(.base_job_id == $a)")" "alice's companions in bob's eyes"
  assert_fails as bob scancel "$(sflex_rows alice companions | jq -r .job_id | head -n 1)"
  assert_ok user alice sflex table "$a"
  as alice scancel "$a"
  as bob scancel "$b"
  wait_until_quiet 60 no_jobs || fail "jobs are left"
}

# bob answers on the controller's port with an order of his own, in a valid credential: his.
test_stranger() {
  local job port step gpus answers=$VC_ROOT/home/bob/answers
  # shellcheck disable=SC2086
  job=$(train alice strange "--elastic --elastic-max=3 -N1 --gres=gpu:1" $pace)
  wait_grown alice "$job"
  gpus=$(job_field alice "$job" held_gpus)
  port=$(vc exec ctl "$E2E_BUILD/bin/sflex" diag --json | jq -r '(.rows? // [.])[0].port')
  job_saved "$job"
  vc kill-ctld
  cat >"$(home bob)/stranger.pl" <<'PERL'
use strict; use IO::Socket::INET;
my ($port, $log) = @ARGV;
my $server = IO::Socket::INET->new(LocalPort => $port, Listen => 50, ReuseAddr => 1) or die "bob: cannot listen: $!";
$SIG{CHLD} = 'IGNORE';
while (my $client = $server->accept) {
  next if fork;
  my ($head, $length, $body) = ('', 0, '');
  while (my $line = <$client>) { $head .= $line; $length = $1 if $line =~ /^content-length:\s*(\d+)/i; last if $line =~ /^\r?\n$/; }
  read $client, $body, $length if $length;
  open my $in, '>', "/tmp/body.$$"; print $in $body; close $in;
  my $plain = `unmunge -m /dev/null < /tmp/body.$$ 2>/dev/null`;
  my ($nonce) = $plain =~ /"nonce"\s*:\s*"([^"]+)"/; $nonce //= '';
  my $order = "flextrain-chunk 00112233445566778899aabbccddeeff 0 1\n" . '{"version":1,"type":"poll","nonce":"' . $nonce . '","controller_epoch":999999999999,"sequence":99,"error":"",' .
    '"body":{"kind":"release","order_id":"evil","allocations":[],"plan":null,"timeout_seconds":10}}';
  open my $out, '>', "/tmp/order.$$"; print $out $order; close $out;
  my $credential = `munge -i /tmp/order.$$`;
  print $client "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ", length $credential, "\r\nConnection: close\r\n\r\n", $credential;
  close $client;
  open my $seen, '>>', $log; print $seen "answered a request of $length bytes, nonce '$nonce'\n"; close $seen;
  exit;
}
PERL
  as bob perl stranger.pl "$port" "$answers" &
  wait_for 90 "an agent asked the stranger" test -s "$answers"
  step=$(last_step alice strange)
  wait_for 60 "several answers" bash -c "[ \$(wc -l <$answers) -ge 3 ]"
  wait_for 60 "training goes on" step_beyond alice strange $((step + 20))
  assert_eq "$gpus" "$(tail -n 1 "$(home alice)/train/strange/metrics.jsonl" | jq .gpus)" "GPUs after the stranger's orders"
  assert_contains "$(grep 'controller:' "$(home alice)/train/strange/job.log")" "uid" "the agent's reason"
  vc exec ctl pkill -u bob perl
  vc start-ctld
  wait_for 30 "slurmctld answers" ctld_answers
  wait_grown alice "$job"
  wait_for 60 "the agent reports again" at_step alice "$job" $((step + 20))
  as alice scancel "$job"
  wait_until_quiet 60 no_jobs || fail "jobs are left"
}
# A growth of JOB was rolled back, and the reason names the fingerprint.
refused_for_fingerprint() {
  local id
  id=$(sflex_rows slurm decisions -j "$1" | jq -r 'select(.outcome == "rolled-back") | .id' | tail -n 1)
  [ -n "$id" ] && sflex_rows slurm explain "$id" | jq -e '.scaling.reason | test("fingerprint")'
}

test_fingerprint() {
  local job
  printf '%s\n' n2 n3 n4 n5 n6 >"$VC_ROOT/home/low-isa"
  # shellcheck disable=SC2086
  job=$(train alice exact "--elastic --elastic-max=2 -N1 -w n1 --gres=gpu:1" $pace)
  wait_for 120 "a growth refused for its fingerprint" refused_for_fingerprint "$job"
  assert_eq 1 "$(jq -s '[.[].gpus] | max' "$(home alice)/train/exact/metrics.jsonl")" "most GPUs that it had"
  job_is "$job" RUNNING || fail "the job is $(job_state "$job")"
  as alice scancel "$job"
  wait_until_quiet 60 no_jobs || fail "jobs are left"
  # shellcheck disable=SC2086
  job=$(train alice fast "--elastic --elastic-max=2 -N1 -w n1 --gres=gpu:1" $pace --set training.numerics=fp32)
  wait_grown alice "$job" 120
  as alice scancel "$job"
  : >"$VC_ROOT/home/low-isa"
}

# After all of the above, with slurmctld, slurmd and the controller at debug level. That the
# environment did travel is what makes it a test.
test_no_secret_in_logs() {
  local file found=0
  assert_contains "$(ctld_log)" "flextrain" "slurmctld's log"
  for file in "$VC_ROOT"/log/* "$(home alice)"/train/*/*.log "$(home alice)"/train/*/companion-*; do
    [ -f "$file" ] || continue
    found=$((found + 1))
    assert_eq "" "$({ grep -a -n -e "$secret" -e 'MUNGE:' "$file" || true; } | cut -c 1-200)" "secrets in $file"
  done
  [ "$found" -ge 3 ] || fail "only $found logs were looked at"
}

e2e_case "two users' elastic jobs side by side" test_two_users
e2e_case "a stranger on the dead controller's port" test_stranger
e2e_case "a companion with other numerics: refused in exact, taken in fp32" test_fingerprint
e2e_case "no credential and no environment value in any log" test_no_secret_in_logs
e2e_done
