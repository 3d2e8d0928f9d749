// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package demo runs the demo as people do, and holds it to what it claims.
package demo

import (
	"os"
	"testing"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/demo"
)

func TestMain(m *testing.M) {
	if code, skipped := clustertest.Skipped(); skipped {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

func TestTheDemoShowsTheMainJob(t *testing.T) {
	if err := demo.Run(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
}
