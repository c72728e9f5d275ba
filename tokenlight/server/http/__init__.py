# SPDX-License-Identifier: Apache-2.0
"""HTTP itself: connections and their limits, keys, bodies, event streams, a line of log for all."""
