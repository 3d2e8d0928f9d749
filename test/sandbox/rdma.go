// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HideRDMA makes the kernel appear to the calling thread, and to the programs that it starts, like
// one that is too old to be queried about RDMA: a netlink socket for RDMA cannot be opened, with
// EINVAL, whether the kernel has RDMA or not. It holds as long as the thread, which must be one
// that [WithMounts] or [Sandbox.Do] gives up.
func HideRDMA() error {
	const number, domain, protocol = 0, 16, 32 // where struct seccomp_data has them: see seccomp(2)
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	// unless skips that many instructions if what was loaded is another value.
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: skip}
	}
	finish := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	filter := []unix.SockFilter{
		load(number), unless(unix.SYS_SOCKET, 5),
		load(domain), unless(unix.AF_NETLINK, 3),
		load(protocol), unless(unix.NETLINK_RDMA, 1),
		finish(unix.SECCOMP_RET_ERRNO | uint32(unix.EINVAL)),
		finish(unix.SECCOMP_RET_ALLOW),
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("hide RDMA from a thread: %w", errno)
	}
	return nil
}
