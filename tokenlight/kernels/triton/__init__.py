# SPDX-License-Identifier: Apache-2.0
"""What Triton kernels of several ops share. The kernels are in the ops' folders."""
