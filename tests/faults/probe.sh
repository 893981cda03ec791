#!/bin/bash
# SPDX-License-Identifier: MIT
# Runs in the controller's namespaces during a cell: how long slurmctld takes for an answer that
# needs its job lock, beside how long this machine takes for the same program without a question.
# One line each half second: TIME CONTROL-SECONDS ANSWER-SECONDS STATUS.
while :; do
  a=$EPOCHREALTIME
  squeue --version >/dev/null
  b=$EPOCHREALTIME
  timeout 30 squeue -h -t PD -o %i >/dev/null 2>&1
  status=$?
  c=$EPOCHREALTIME
  a=${a/./} b=${b/./} c=${c/./} # microseconds
  printf '%s.%06d %d.%06d %d.%06d %d\n' "${a%??????}" $((10#${a: -6})) $(((b - a) / 1000000)) \
    $(((b - a) % 1000000)) $(((c - b) / 1000000)) $(((c - b) % 1000000)) $status
  sleep 0.5
done
