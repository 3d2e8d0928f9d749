// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRuntimesThatHonourCDIDevicesAreRecognized(t *testing.T) {
	for name, test := range map[string]struct {
		runtime, version, config string
		says                     string // "" if they are honoured
		unknown                  bool
	}{
		"containerd 2.4": {
			runtime: "containerd", version: "v2.4.2", config: `{"cdiSpecDirs":["/etc/cdi"]}`,
		},
		"containerd 2.0 with CDI off": {
			runtime: "containerd", version: "2.0.1", config: `{"enableCDI":false}`, says: "enable_cdi = true",
		},
		"containerd 1.7 with CDI on": {
			runtime: "containerd", version: "v1.7.36", config: `{"enableCDI":true}`,
		},
		"containerd 1.7 by default": {
			runtime: "containerd", version: "1.7.36", config: `{"enableCDI":false}`, says: "enable_cdi = true",
		},
		"containerd 1.6": {
			runtime: "containerd", version: "1.6.38", config: `{}`,
			says: "containerd 1.6.38 ignores CDI devices; upgrade it to 1.7",
		},
		"a containerd built from a tree": {runtime: "containerd", version: "v2.1.0-12-gdeadbeef.m", config: `{}`},
		"a containerd without a version": {
			runtime: "containerd", version: "unknown", says: `version is "unknown"`, unknown: true,
		},
		"a containerd that shows no config": {
			runtime: "containerd", version: "v2.4.2", says: "containerd's configuration", unknown: true,
		},
		"CRI-O 1.27": {runtime: "cri-o", version: "1.27.0"},
		"CRI-O 1.26": {runtime: "cri-o", version: "1.26.4", says: "upgrade it to 1.27"},
		"Docker's, which does not support CDI": {
			runtime: "docker", version: "28.0.0", says: "docker is not known to honour CDI devices",
		},
	} {
		fake := &runtimeServer{
			version: &runtimeapi.VersionResponse{RuntimeName: test.runtime, RuntimeVersion: test.version},
			config:  test.config,
		}
		support := watch(t, serve(t, filepath.Join(t.TempDir(), "cri.sock"), fake))
		if test.unknown {
			fake.await(t, 2) // queries go on
		} else {
			awaitAnswer(t, support, func(err error) bool { return !errors.Is(err, ErrUnknown) })
		}
		err := support.Check()
		if test.says == "" && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: got %v, want %q", name, err, test.says)
		}
		if errors.Is(err, ErrUnknown) != test.unknown {
			t.Errorf("%s: %v, unknown %t", name, err, test.unknown)
		}
	}
}

func TestQueriesARestartedRuntimeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cri.sock")
	old := &runtimeServer{version: &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "1.6.1"}}
	server := serve(t, path, old)
	support := watch(t, server)
	awaitAnswer(t, support, func(err error) bool { return err != nil && strings.Contains(err.Error(), "1.6.1") })
	if name := support.Runtime(); name != "containerd" {
		t.Errorf("the runtime's name is %q", name)
	}
	server.Stop()
	awaitAnswer(t, support, func(err error) bool { return errors.Is(err, ErrUnknown) })
	if name := support.Runtime(); name != "" {
		t.Errorf("the name of a runtime that has ended is %q", name)
	}
	serve(
		t,
		path,
		&runtimeServer{
			version: &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "2.0.0"},
			config:  "{}",
		},
	)
	awaitAnswer(t, support, func(err error) bool { return err == nil })
}

func TestRetriesARuntimeThatIsNotReady(t *testing.T) {
	fake := &runtimeServer{}
	support := watch(t, serve(t, filepath.Join(t.TempDir(), "cri.sock"), fake))
	fake.await(t, 1)
	if err := support.Check(); !errors.Is(err, ErrUnknown) {
		t.Errorf("before: %v", err)
	}
	fake.mu.Lock()
	fake.version, fake.config = &runtimeapi.VersionResponse{RuntimeName: "containerd", RuntimeVersion: "2.0.0"}, "{}"
	fake.mu.Unlock()
	awaitAnswer(t, support, func(err error) bool { return err == nil })
}

// runtimeServer is a runtime that reports its version, or that it is not ready.
type runtimeServer struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	path string

	mu      sync.Mutex
	version *runtimeapi.VersionResponse // nil while not ready
	config  string
	queries int

	*grpc.Server
}

func (r *runtimeServer) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queries++
	if r.version == nil {
		return nil, status.Error(codes.Unavailable, "starting")
	}
	return r.version, nil
}

func (r *runtimeServer) Status(
	_ context.Context,
	request *runtimeapi.StatusRequest,
) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !request.GetVerbose() || r.config == "" {
		return &runtimeapi.StatusResponse{}, nil
	}
	return &runtimeapi.StatusResponse{Info: map[string]string{"config": r.config}}, nil
}

// await waits until the runtime has received this number of queries.
func (r *runtimeServer) await(t *testing.T, times int) {
	t.Helper()
	eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.queries >= times
	})
}

// serve serves the runtime at path until the test ends.
func serve(t *testing.T, path string, r *runtimeServer) *runtimeServer {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	r.path, r.Server = path, grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(r.Server, r)
	done := make(chan error, 1)
	go func() { done <- r.Serve(listener) }()
	t.Cleanup(func() {
		r.Stop()
		<-done
	})
	return r
}

// watch watches the runtime until the test ends.
func watch(t *testing.T, r *runtimeServer) *Support {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+r.path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	support := NewSupport()
	if err := support.Check(); !errors.Is(err, ErrUnknown) {
		t.Errorf("before the first query: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		support.Watch(ctx, conn)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		conn.Close()
	})
	return support
}

// awaitAnswer waits for an answer that satisfies good.
func awaitAnswer(t *testing.T, support *Support, good func(error) bool) {
	t.Helper()
	eventually(t, func() bool { return good(support.Check()) })
}

func eventually(t *testing.T, good func() bool) {
	t.Helper()
	for limit := time.After(30 * time.Second); !good(); {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-limit:
			t.Fatal("not so after 30s")
		}
	}
}
