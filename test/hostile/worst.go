// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package hostile

// Worst returns the shapes that have cost most on machines of two kinds, with 8 GPUs and with
// devices of two kubelet device plugins: what searches have found, by part of a cycle.
func Worst() []Shape {
	return []Shape{
		{Machine: EightGPUs, Regular: 1, Form: Paths, Odd: Paths, Devices: 17, Groups: 3, Nested: 2, Amount: Different},
		{Machine: EightGPUs, Regular: 2, Form: Paths, Odd: Paths, Devices: 8, Groups: 3, Nested: 1, Amount: Different,
			Cards: true, Scored: true, Varied: true},
		{Machine: EightGPUs, Regular: 40, Inits: 8, Form: Paths, Odd: Counts, Devices: 3, Groups: 2, Nested: 2,
			Amount: Different, Cards: true},
		{Machine: HostedDevices, Regular: 1, Form: Counts, Odd: Counts, Devices: 15, Groups: 1, Plugins: 1},
		{Machine: HostedDevices, Regular: 1, Form: Counts, Odd: Counts, Devices: 15, Groups: 1, Plugins: 2},
		{Machine: HostedDevices, Regular: 2, Form: Several, Odd: Counts, Devices: 2, Groups: 1, Plugins: 1},
		{Machine: HostedDevices, Regular: 1, Form: Several, Odd: Counts, Devices: 9, Groups: 3, Plugins: 2},
		{Machine: HostedDevices, Regular: 2, Sidecars: 4, Inits: 3, Form: Several, Odd: Each, Devices: 2, Groups: 2,
			Plugins: 2, Varied: true},
		{Machine: HostedDevices, Regular: 1, Form: Named, Odd: Named, Devices: 9, Groups: 3, Plugins: 2},
	}
}
