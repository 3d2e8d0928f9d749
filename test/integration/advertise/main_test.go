// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

// Package advertise_test publishes devices on a real API server, with NodeRestriction and a
// kubelet's own credentials.
package advertise_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/kubedevice/kubedevice/test/integration/controlplane"
)

// startTimeout allows for a busy machine: a quiet one needs five seconds.
const startTimeout = 2 * time.Minute

var server *controlplane.ControlPlane

func TestMain(m *testing.M) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var err error
	if server, err = controlplane.Start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
