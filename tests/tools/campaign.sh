#!/usr/bin/env bash
# campaign -- half of ten thousand seeds of the simulator: random rank counts, operations, sizes, jitter and
# reordering; right values and equal bits on all ranks, and each seed twice with one trace.
case "${TEST_EFFORT-normal}" in
short) seeds=50 ;;
*) seeds=5000 ;;
esac
exec "$1" allreduce --seeds "$seeds" --seed "$2"
