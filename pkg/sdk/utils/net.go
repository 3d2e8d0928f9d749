// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package utils

import (
	"fmt"
	"net"
)

// LocalIPsWithoutLoopback returns the IP addresses of this machine's interfaces, IPv4 and IPv6,
// without those of loopback.
func LocalIPsWithoutLoopback() ([]net.IP, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list this machine's addresses: %w", err)
	}
	var ips []net.IP
	for _, addr := range addrs {
		if ipNet, ok := addr.(*net.IPNet); ok && !ipNet.IP.IsLoopback() {
			ips = append(ips, ipNet.IP)
		}
	}
	return ips, nil
}
