#!/bin/bash
# SPDX-License-Identifier: MIT
# The agent alone on real Slurm, munge and mpirun, its controller driven by hand: a base job grows
# over companions on another node and on its own, leaves them, and survives their deaths and
# processes that stop without dying.
# shellcheck disable=SC2016,SC2317 # cases are called by name; their scripts expand in the job
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=tests/e2e/agent_trainer.sh
. "$(dirname "${BASH_SOURCE[0]}")/agent_trainer.sh"

e2e_cluster --nodes 3 --gpus 4
build_agent_trainer alice || exit 1
AGENT=$E2E_BUILD/bin/flextrain-agent
DRILL=$VC_ROOT/drill
HOME_A=$(home alice)
PORT=6822

mkdir -p "$DRILL" && chmod 777 "$DRILL"
as slurm ctl "$E2E_BUILD/bin/drill_controller" $PORT "$DRILL" >"$VC_ROOT/log/drill.log" 2>&1 &

cat >"$HOME_A/agent/base.sh" <<SH
#!/bin/bash
exec $AGENT run --stall-limit 15 -- agent/trainer
SH
cat >"$HOME_A/agent/ends.sh" <<SH
#!/bin/bash
$AGENT run -- agent/trainer &
until [ -e agent/end ]; do sleep 0.2; done
SH
chmod 755 "$HOME_A/agent/base.sh" "$HOME_A/agent/ends.sh"

# base NODES GPUS-PER-NODE NODELIST: starts one and waits until its trainer steps.
base() {
  local id
  rm -f "$HOME_A/agent/checkpoint"
  id=$(submit alice -N"$1" --gres=gpu:"$2" -w "$3" -o agent/base-%j.txt agent/base.sh)
  wait_job "$id" RUNNING >&2
  wait_for 60 "the trainer of job $id steps" said "$id" progress '.body.state == "running"' >&2
  echo "$id"
}
# companion BASE NODE GPUS [SBATCH-ARGS…]: as the controller would submit it.
companion() {
  local id address
  address=$(messages "$1" register | jq -r '.body.environment.FLEXTRAIN_NOTICE_ADDRESS' | tail -n 1)
  id=$(submit alice -N1 -w "$2" --gres=gpu:"$3" -o agent/companion-%j.txt "${@:4}" \
    --export=ALL,FLEXTRAIN_NOTICE_ADDRESS="$address" --wrap="exec $AGENT companion --base-job $1 --intent i$1 -- echo mini")
  wait_for 60 "companion $id registers" said "$id" register '.body.fingerprint == "mini"' >&2
  echo "$id"
}
messages() { jq -c --argjson job "$1" --arg type "$2" 'select(.job == $job and .type == $type)' "$DRILL/messages"; }
said() { [ -n "$(messages "$1" "$2" | jq -c "select($3)")" ]; }
reports() { messages "$1" report | wc -l; }
reported() { [ "$(reports "$1")" -ge "$2" ]; }
report() { messages "$1" report | sed -n "$2p" | jq -r "$3"; }

# order BASE KIND ID HOST:JOB:GPUS…
order() {
  local list='' part host job gpus
  for part in "${@:4}"; do
    IFS=: read -r host job gpus <<<"$part"
    list+="${list:+,}{\"job_id\":$job,\"host\":\"$host\",\"gpus\":$gpus,\"address\":\"\"}"
  done
  echo "{\"kind\":\"$2\",\"order_id\":\"$3\",\"allocations\":[$list],\"plan\":null,\"timeout_seconds\":60}" >"$DRILL/new"
  mv "$DRILL/new" "$DRILL/order-$1"
}
output() { cat "$HOME_A/agent/base-$1.txt"; }
steps_on() { # the trainer of job $1 makes steps from here
  local before
  before=$(messages "$1" progress | tail -n 1 | jq .body.step)
  wait_for 30 "job $1 steps on" said "$1" progress ".body.state == \"running\" and .body.step > $before"
}
phases() { report "$1" "$2" '.body.phases | to_entries | map("\(.key) \(.value * 100 | round / 100)") | join(", ")'; }

test_other_node() {
  local b c t
  b=$(base 2 2 n1,n2) || exit 1
  messages "$b" register | tail -n 1 | jq -e '.uid >= 1000 and .submit > 0 and .body.numerics == "exact"' || fail "registration"
  c=$(companion "$b" n3 4) || exit 1
  t=$(now)
  order "$b" grow g1 n1:"$b":2 n2:"$b":2 n3:"$c":4
  wait_for 60 'the growth is reported' reported "$b" 1
  assert_eq true "$(report "$b" 1 .body.done)" "$(report "$b" 1 .body.reason)"
  echo "# growth to 8 GPUs over 3 nodes: $(since "$t") s; $(phases "$b" 1)"
  assert_eq 8 "$(report "$b" 1 .body.gpus)"
  assert_contains "$(output "$b")" "place 7 of 8 on n3 job $c visible 3"
  assert_contains "$(output "$b")" "place 3 of 8 on n2 job $b visible 1"
  assert_contains "$(output "$b")" "place 0 of 8 on n1 job - visible 0"
  steps_on "$b"
  t=$(now)
  order "$b" shrink s1 n1:"$b":2 n2:"$b":2
  wait_for 60 'the companion is left' reported "$b" 2
  echo "# left after $(since "$t") s"
  echo '{"kind":"release"}' >"$DRILL/new" && mv "$DRILL/new" "$DRILL/order-$c"
  wait_job "$c" COMPLETED
  wait_for 60 'the shrink is reported' reported "$b" 3
  echo "# shrink to 4 GPUs: $(phases "$b" 3)"
  assert_eq 4 "$(report "$b" 3 .body.gpus)"
  steps_on "$b"
  # The user's own signal: checkpoint, exit code 85.
  vc exec ctl scancel --batch --signal=USR1 "$b"
  wait_job "$b" FAILED
  assert_contains "$(vc exec ctl scontrol show job "$b")" "ExitCode=85:0"
  wait_for 10 'the agent says bye' said "$b" bye '.body.exit_code == 85'
}

test_same_node() {
  local b c out
  b=$(base 1 2 n1) || exit 1
  c=$(companion "$b" n1 2) || exit 1
  order "$b" grow g1 n1:"$b":2 n1:"$c":2
  wait_for 60 'the growth is reported' reported "$b" 1
  assert_eq true "$(report "$b" 1 .body.done)" "$(report "$b" 1 .body.reason)"
  echo "# growth on the same node: $(phases "$b" 1)"
  out=$(output "$b")
  assert_contains "$out" "place 2 of 4 on n1 job $c visible"
  assert_contains "$out" "place 3 of 4 on n1 job $c visible"
  assert_contains "$out" "place 1 of 4 on n1 job - visible 1"
  order "$b" shrink s1 n1:"$b":2
  wait_for 60 'the shrink is reported' reported "$b" 3
  steps_on "$b"
  vc exec ctl scancel "$b"
  vc exec ctl scancel "$c"
}

test_companion_cancelled() {
  local b c t
  b=$(base 1 2 n1) || exit 1
  c=$(companion "$b" n2 2) || exit 1
  order "$b" grow g1 n1:"$b":2 n2:"$c":2
  wait_for 60 'the growth is reported' reported "$b" 1
  assert_eq true "$(report "$b" 1 .body.done)" "$(report "$b" 1 .body.reason)"
  t=$(now)
  vc exec ctl scancel "$c"
  wait_for 60 'the loss is reported' reported "$b" 3
  echo "# back on the base $(since "$t") s after scancel: $(report "$b" 2 .body.reason)"
  assert_eq 2 "$(report "$b" 3 .body.gpus)"
  job_is "$b" RUNNING || fail "the base job ended"
  steps_on "$b"
  vc exec ctl scancel "$b"
}

test_companion_called_back() {
  local b c t
  b=$(base 1 2 n1) || exit 1
  c=$(companion "$b" n2 2) || exit 1
  order "$b" grow g1 n1:"$b":2 n2:"$c":2
  wait_for 60 'the growth is reported' reported "$b" 1
  t=$(now)
  vc exec ctl scancel --batch --signal=USR1 "$c" # as Slurm does before it preempts
  wait_job "$c" COMPLETED 60
  echo "# the companion is gone $(since "$t") s after Slurm's signal"
  wait_for 60 'the move is reported' reported "$b" 3
  assert_contains "$(report "$b" 2 .body.reason)" "calls companion $c back"
  assert_contains "$(cat "$HOME_A/agent/companion-$c.txt")" "the trainer has left"
  [ "$(report "$b" 3 '.body.phases.save > 0')" = true ] || fail "it did not checkpoint first"
  steps_on "$b"
  vc exec ctl scancel "$b"
}

test_power_loss() {
  local b c t
  b=$(base 1 2 n1) || exit 1
  c=$(companion "$b" n3 4) || exit 1
  order "$b" grow g1 n1:"$b":2 n3:"$c":4
  wait_for 60 'the growth is reported' reported "$b" 1
  t=$(now)
  vc kill n3
  wait_for 90 'the loss is reported' reported "$b" 3
  echo "# back on the base $(since "$t") s after a node's power loss: $(report "$b" 2 .body.reason)"
  job_is "$b" RUNNING || fail "the base job ended"
  steps_on "$b"
  vc exec ctl scancel "$b"
  vc start n3
}

none_on() { ! vc exec "$1" pgrep -f "$2"; }

test_stopped_rank() { # in a companion: nobody dies, nothing moves
  local b c t
  b=$(base 1 2 n1) || exit 1
  c=$(companion "$b" n3 4) || exit 1
  order "$b" grow g1 n1:"$b":2 n3:"$c":4
  wait_for 60 'the growth is reported' reported "$b" 1
  t=$(now)
  vc exec n3 pkill -STOP -o -f '^agent/trainer'
  wait_for 90 'the move is reported' reported "$b" 3
  echo "# back on the base $(since "$t") s after a rank was stopped: $(report "$b" 2 .body.reason)"
  assert_contains "$(report "$b" 2 .body.reason)" "the trainer hangs"
  steps_on "$b"
  wait_for 30 "no rank is left on the companion's node" none_on n3 '^agent/trainer'
  job_is "$c" RUNNING || fail "the companion ended"
  vc exec ctl scancel "$b" "$c"
}

test_stopped_daemon() { # the ranks go on; only leaving needs it
  local b c t
  b=$(base 2 2 n1,n2) || exit 1
  c=$(companion "$b" n3 4) || exit 1
  order "$b" grow g1 n1:"$b":2 n2:"$b":2 n3:"$c":4
  wait_for 60 'the growth is reported' reported "$b" 1
  vc exec n3 pkill -STOP -x orted
  steps_on "$b"
  t=$(now)
  order "$b" shrink s1 n1:"$b":2 n2:"$b":2
  wait_for 90 'the shrink is reported' reported "$b" 3
  echo "# on the base $(since "$t") s after the order, its mpirun's daemon on n3 stopped"
  assert_eq true "$(report "$b" 3 .body.done)"
  steps_on "$b"
  wait_for 30 "no rank is left on the companion's node" none_on n3 '^agent/trainer'
  wait_for 30 "no daemon is left on the companion's node" none_on n3 '^(/[^ ]*/)?orted'
  vc exec ctl scancel "$b" "$c"
}

test_script_ends() { # while the trainer runs: it does not outlive the job
  local b
  rm -f "$HOME_A/agent/checkpoint" "$HOME_A/agent/end"
  b=$(submit alice -N2 --gres=gpu:2 -w n1,n2 -o agent/base-%j.txt agent/ends.sh)
  wait_for 60 "the trainer of job $b steps" said "$b" progress '.body.state == "running"'
  touch "$HOME_A/agent/end"
  wait_job "$b" COMPLETED
  wait_for 30 "no rank is left on n1" none_on n1 '^agent/trainer'
  wait_for 30 "no rank is left on n2" none_on n2 '^agent/trainer'
  wait_for 10 "no agent is left on n1" none_on n1 flextrain-agent
}

e2e_case "grow over another node and back, the user's signal" test_other_node
e2e_case "base and companion on one node" test_same_node
e2e_case "a cancelled companion" test_companion_cancelled
e2e_case "a companion that Slurm calls back" test_companion_called_back
e2e_case "a companion's rank stopped" test_stopped_rank
e2e_case "mpirun's daemon on a companion's node stopped" test_stopped_daemon
e2e_case "a script that ends while the trainer runs" test_script_ends
e2e_case "a node's power loss" test_power_loss # last: Slurm may need minutes to miss its companion
e2e_done
