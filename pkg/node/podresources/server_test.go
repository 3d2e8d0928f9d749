// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package podresources

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
)

func TestSocketIsForRootOnlyAndRemovedAtTheEnd(t *testing.T) {
	n := newNode(t)
	stop := n.serve()
	for path, want := range map[string]os.FileMode{n.options.Socket: 0o600,
		filepath.Dir(n.options.Socket): dirMode} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	stop()
	if _, err := os.Lstat(n.options.Socket); !os.IsNotExist(err) {
		t.Errorf("afterwards the socket is still there: %v", err)
	}
}

func TestServesNothingBeforeSync(t *testing.T) {
	n := newNode(t)
	begun, known := make(chan struct{}), make(chan struct{})
	n.options.Synced = append(n.options.Synced, begun, known)
	n.run()
	begun <- struct{}{}
	if err := n.server.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "not served yet") {
		t.Errorf("health says %v", err)
	}
	if _, err := os.Lstat(n.options.Socket); !os.IsNotExist(err) {
		t.Errorf("the socket is there: %v", err)
	}
	close(known)
	n.awaitServing()
}

func TestServerCanEndBeforeSync(t *testing.T) {
	n := newNode(t)
	n.options.Synced = append(n.options.Synced, make(chan struct{}))
	n.run()()
}

func TestRetriesServingAndDetectsARemovedSocket(t *testing.T) {
	n := newNode(t)
	directory := filepath.Dir(n.options.Socket)
	if err := os.WriteFile(directory, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n.run()
	n.awaitHealth(directory + ": not a directory")
	if err := os.Remove(directory); err != nil {
		t.Fatal(err)
	}
	n.awaitServing()
	if err := os.Remove(n.options.Socket); err != nil {
		t.Fatal(err)
	}
	n.awaitHealth(n.options.Socket + " was removed; restart kubecri")
}

func TestReportsATooLongSocketPath(t *testing.T) {
	n := newNode(t)
	n.options.Socket = filepath.Join(filepath.Dir(n.options.Socket), strings.Repeat("x", 100), SocketName)
	n.run()
	n.awaitHealth("choose a shorter directory")
}

func TestReplacesTheSocketOfACrashedProcess(t *testing.T) {
	n := newNode(t)
	if err := os.MkdirAll(filepath.Dir(n.options.Socket), dirMode); err != nil {
		t.Fatal(err)
	}
	left, err := net.Listen("unix", n.options.Socket)
	if err != nil {
		t.Fatal(err)
	}
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	left.Close()
	n.serve()
	if _, err := n.client.List(t.Context(), &podresourcesapi.ListPodResourcesRequest{},
		grpc.WaitForReady(true)); err != nil {
		t.Error(err)
	}
}

func TestIsUnavailableWhileTheKubeletIs(t *testing.T) {
	n := newNode(t)
	n.holds("u1", "p", map[string][]string{"main": {gpu0}})
	n.kubelet.lists(pod("p", "main"))
	n.serve()
	n.kubelet.stop()
	calls := map[string]func(context.Context) error{
		"List": func(ctx context.Context) error {
			_, err := n.client.List(ctx, &podresourcesapi.ListPodResourcesRequest{})
			return err
		},
		"Get": func(ctx context.Context) error {
			_, err := n.client.Get(ctx, &podresourcesapi.GetPodResourcesRequest{PodNamespace: "default", PodName: "p"})
			return err
		},
		"GetAllocatableResources": func(ctx context.Context) error {
			_, err := n.client.GetAllocatableResources(ctx, &podresourcesapi.AllocatableResourcesRequest{})
			return err
		},
		"List of v1alpha1": func(ctx context.Context) error { _, err := n.alphaList(ctx); return err },
	}
	for name, call := range calls {
		err := call(t.Context())
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), n.options.Kubelet) ||
			!strings.Contains(err.Error(), "--root-dir") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := n.server.Check(t.Context()); err != nil {
		t.Errorf("that is no fault of kubecri's, and its health says %v", err)
	}
	n.kubelet.start()
	for name, call := range calls {
		eventually(t, func() error { return call(t.Context()) })
		t.Log(name, "answers again")
	}
}

func TestForwardsErrorsOfTheKubelet(t *testing.T) {
	n := newNode(t)
	n.serve()
	for name, want := range map[string]error{
		"its rate limit":        status.Error(codes.ResourceExhausted, "rejected by rate limit"),
		"a pod that is unknown": status.Error(codes.Unknown, "pod p in namespace default not found"),
		"a method that is off":  status.Error(codes.Unimplemented, "off"),
	} {
		n.kubelet.fail(want)
		_, err := n.client.Get(t.Context(), &podresourcesapi.GetPodResourcesRequest{PodNamespace: "default",
			PodName: "p"})
		if status.Code(err) != status.Code(want) || status.Convert(err).Message() != status.Convert(want).Message() {
			t.Errorf("%s: got %v, want %v", name, err, want)
		}
	}
}

func TestPendingCallEndsWithTheServer(t *testing.T) {
	n := newNode(t)
	stop := n.serve()
	called := n.kubelet.hang()
	ended := make(chan error, 1)
	go func() {
		_, err := n.client.List(context.Background(), &podresourcesapi.ListPodResourcesRequest{})
		ended <- err
	}()
	<-called
	stop()
	select {
	case err := <-ended:
		if status.Code(err) != codes.Unavailable {
			t.Errorf("the call ended with %v", err)
		}
	case <-time.After(timeout):
		t.Fatal("the call has not ended")
	}
}
