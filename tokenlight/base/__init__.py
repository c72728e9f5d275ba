# SPDX-License-Identifier: Apache-2.0
"""Errors, environment, log, clock: the standard library only."""
