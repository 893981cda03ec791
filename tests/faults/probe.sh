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
  awk -v a="$a" -v b="$b" -v c="$c" -v s=$status 'BEGIN { printf "%.3f %.3f %.3f %d\n", a, b - a, c - b, s }'
  sleep 0.5
done
