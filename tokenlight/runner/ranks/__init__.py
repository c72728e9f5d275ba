# SPDX-License-Identifier: Apache-2.0
"""One model on several ranks, a process each: rank 0 schedules and samples, the others follow."""
