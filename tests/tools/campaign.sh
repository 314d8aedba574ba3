#!/usr/bin/env bash
# campaign -- ten thousand seeds of the simulator: random rank counts, operations, sizes, jitter and
# reordering; right values and equal bits on all ranks, and each seed twice with one trace.
case "${TEST_EFFORT-normal}" in
short) seeds=100 ;;
*) seeds=10000 ;;
esac
exec "$1" allreduce --seeds "$seeds" --seed 1
