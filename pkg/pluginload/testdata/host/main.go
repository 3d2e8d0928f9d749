// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// A host: it checks and loads the device plugins of the directory that is its argument.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
)

func main() {
	pluginload.MaybeChild()
	dir := os.Args[1]
	files, err := filepath.Glob(filepath.Join(dir, "*.so"))
	if err != nil {
		panic(err)
	}
	var checker pluginload.Checker
	for _, file := range files {
		line, err := checker.Check(context.Background(), file)
		fmt.Println("check:", line, err)
	}
	loaded, rejected := pluginload.LoadDir(context.Background(), dir, pluginload.Devices())
	for _, l := range loaded {
		fmt.Println("loaded:", l.Name)
	}
	for _, err := range rejected {
		fmt.Println("rejected:", err)
	}
}
