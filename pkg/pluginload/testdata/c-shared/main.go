// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A Go library for C programs.
package main

import "C"

//export CreateDevicePlugin
func CreateDevicePlugin() {}

func main() {}
