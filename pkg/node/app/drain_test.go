// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

// standalone returns the options of a kubecri without an API server in a directory, with the
// runtime's socket there.
func standalone(dir string) *Options {
	options := NewOptions()
	options.NRISocket = "" // of this machine
	options.NodeName = "node-1"
	options.UpstreamEndpoint = "unix://" + filepath.Join(dir, "runtime.sock")
	options.ServeEndpoint = "unix://" + filepath.Join(dir, "kubecri.sock")
	options.StateDir = filepath.Join(dir, "state")
	options.MetricsAddress = ""
	options.loadPlugins = loadOneGPU
	return options
}

func TestCreationsInFlightCompleteAtTermination(t *testing.T) {
	dir := t.TempDir()
	runtime := startRuntime(t, filepath.Join(dir, "runtime.sock"))
	runtime.hold = make(chan struct{})
	end := begin(t, standalone(dir))
	socket := filepath.Join(dir, "kubecri.sock")
	awaitSocket(t, socket)
	conn, err := criproxy.Dial(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	created := make(chan error, 1)
	go func() {
		static := &runtimeapi.CreateContainerRequest{PodSandboxId: "s", SandboxConfig: &runtimeapi.PodSandboxConfig{}}
		_, err := runtimeapi.NewRuntimeServiceClient(conn).CreateContainer(ctx, static)
		created <- err
	}()
	select {
	case <-runtime.created: // the runtime is at work
	case err := <-created:
		t.Fatalf("the creation did not reach the runtime: %v", err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); end() }()
	for socketAnswers(socket).run(ctx) == nil { // until no new caller gets in
		if ctx.Err() != nil {
			t.Fatal("kubecri still takes callers")
		}
	}
	select {
	case err := <-created:
		t.Fatalf("the creation was not waited for: %v", err)
	default:
	}
	close(runtime.hold)
	if err := <-created; err != nil {
		t.Errorf("the creation: %v", err)
	}
	<-ended
}

func TestSocketsAndFilesAreForTheirOwnerOnly(t *testing.T) {
	dir := shortDir(t)
	startRuntime(t, filepath.Join(dir, "runtime.sock"))
	options := standalone(dir)
	begin(t, options)
	awaitSocket(t, filepath.Join(dir, "kubecri.sock"))
	awaitSocket(t, filepath.Join(options.devicePluginsDir(), "kubelet.sock"))
	awaitSocket(t, options.podResourcesPath())
	sockets := 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "runtime.sock" {
			return err
		}
		info, err := entry.Info()
		if errors.Is(err, fs.ErrNotExist) { // a state file that was renamed to its place meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		if info.Mode().Type() == fs.ModeSocket {
			sockets++
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil || sockets != 3 {
		t.Fatalf("%d sockets, %v", sockets, err)
	}
}
