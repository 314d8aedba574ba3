#!/usr/bin/env bash
# campaign -- seeds of the simulator: random operations, rank counts, networks, sizes, jitter,
# reordering and freezes; right values and equal bits on all ranks, each seed twice with one trace.
#
# usage: campaign.sh RUBATO-SIM FIRST_SEED SEEDS
seeds=$3
[[ ${TEST_LENGTH-normal} == short ]] && seeds=$((seeds / 10))
[[ ${TEST_LENGTH-normal} == long ]] && seeds=$((seeds * 10))
exec "$1" campaign --seeds "$seeds" --seed "$2"
