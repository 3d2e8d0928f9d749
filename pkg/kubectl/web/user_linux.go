// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package web

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// established is the state of a connection in /proc/net/tcp.
const established = "01"

// connectsAsUser reports whether the connection from one address of this machine to another is one
// of this user's, or of root's, which may do as any user: a relay into a virtual machine runs as
// root.
func connectsAsUser(from, to string) bool {
	source, failed := netip.ParseAddrPort(from)
	target, err := netip.ParseAddrPort(to)
	if err != nil || failed != nil {
		return false
	}
	local, remote := nameInProc(source), nameInProc(target)
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, err := os.ReadFile(file)
		if err != nil {
			continue // this machine has no IPv6
		}
		for line := range strings.Lines(string(table)) {
			// Number, local address, remote address, state, queues, timer, retransmits, user.
			fields := strings.Fields(line)
			if len(fields) > 7 && fields[1] == local && fields[2] == remote && fields[3] == established {
				return fields[7] == strconv.Itoa(os.Getuid()) || fields[7] == "0"
			}
		}
	}
	return false
}

// nameInProc returns an address as /proc/net/tcp has it: words of the machine in hexadecimal.
func nameInProc(socket netip.AddrPort) string {
	var name strings.Builder
	for word := range slices.Chunk(socket.Addr().AsSlice(), 4) {
		fmt.Fprintf(&name, "%08X", binary.NativeEndian.Uint32(word))
	}
	fmt.Fprintf(&name, ":%04X", socket.Port())
	return name.String()
}
