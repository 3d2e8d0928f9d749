// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// upgraded is a node whose kubecri is replaced while it runs, without systemd.
type upgraded struct {
	t       *testing.T
	dir     string
	kubelet runtimeapi.RuntimeServiceClient
}

// newUpgraded starts a node's runtime.
func newUpgraded(t *testing.T, runtime runtimeapi.RuntimeServiceServer) *upgraded {
	u := &upgraded{t: t, dir: shortDir(t)}
	serveRuntime(t, filepath.Join(u.dir, "runtime.sock"), runtime)
	// As the kubelet connects, which fails fast.
	conn, err := grpc.NewClient("unix://"+u.socket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	u.kubelet = runtimeapi.NewRuntimeServiceClient(conn)
	return u
}

func (u *upgraded) socket() string { return filepath.Join(u.dir, "kubecri.sock") }

// start starts the next kubecri and returns when it has the socket.
func (u *upgraded) start(more ...string) *exec.Cmd {
	u.t.Helper()
	before, _ := os.Lstat(u.socket())
	command := exec.Command(os.Args[0], append([]string{"--container-runtime-endpoint=unix://" + u.socket(),
		"--cri-upstream=unix://" + filepath.Join(u.dir, "runtime.sock"), "--state-dir=" + filepath.Join(u.dir, "state"),
		"--cridevices=" + filepath.Join(u.dir, "no-plugins"), "--metrics-bind-address=", "--hostname-override=node-1"},
		more...)...)
	startKubecri(u.t, command)
	for limit := time.Now().Add(30 * time.Second); time.Now().Before(limit); {
		if now, err := os.Lstat(u.socket()); err == nil && (before == nil || !os.SameFile(before, now)) {
			return command
		}
		<-time.After(time.Millisecond)
	}
	u.t.Fatal("the socket was not taken within 30s")
	return nil
}

// create creates a container of a pod that kubecri lets pass.
func (u *upgraded) create(ctx context.Context) error {
	_, err := u.kubelet.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		SandboxConfig: &runtimeapi.PodSandboxConfig{
			Annotations: map[string]string{"kubernetes.io/config.source": "file"},
		},
	})
	return err
}

// busyRuntime counts what it creates, and holds creations back while the test says so.
type busyRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	created atomic.Int64
	began   chan struct{}
	release chan struct{}
}

func newBusyRuntime() *busyRuntime {
	r := &busyRuntime{began: make(chan struct{}, 1), release: make(chan struct{})}
	return r
}

func (r *busyRuntime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "made-up"}, nil
}

func (r *busyRuntime) ListContainers(context.Context,
	*runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{}, nil
}

func (r *busyRuntime) ListPodSandbox(context.Context,
	*runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{}, nil
}

func (r *busyRuntime) CreateContainer(ctx context.Context,
	_ *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	select {
	case r.began <- struct{}{}:
	default:
	}
	select {
	case <-r.release:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r.created.Add(1)
	return &runtimeapi.CreateContainerResponse{ContainerId: "c"}, nil
}

func (r *busyRuntime) GetContainerEvents(_ *runtimeapi.GetEventsRequest,
	stream runtimeapi.RuntimeService_GetContainerEventsServer) error {
	if err := stream.Send(&runtimeapi.ContainerEventResponse{ContainerId: "c"}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func TestUpgradesUnderLoadLoseNoCallAndRepeatNone(t *testing.T) {
	runtime := newBusyRuntime()
	close(runtime.release)
	u := newUpgraded(t, runtime)
	serving := u.start()

	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	var versions, creates atomic.Int64
	for range 4 {
		callers.Go(func() {
			for ctx.Err() == nil {
				if _, err := u.kubelet.Version(t.Context(), &runtimeapi.VersionRequest{}); err != nil {
					t.Errorf("Version: %v", err)
				}
				versions.Add(1)
				if err := u.create(t.Context()); err != nil {
					t.Errorf("CreateContainer: %v", err)
				}
				creates.Add(1)
				// A hundred callers a second are a busy node; more would only starve the processes
				// under test.
				<-time.After(10 * time.Millisecond)
			}
		})
	}
	for range 3 {
		next := u.start()
		if err := serving.Wait(); err != nil {
			t.Errorf("the kubecri before ended with %v", err)
		}
		for enough := creates.Load() + 50; creates.Load() < enough; {
			<-time.After(time.Millisecond)
		}
		serving = next
	}
	stop()
	callers.Wait()
	if got, want := runtime.created.Load(), creates.Load(); got != want {
		t.Errorf("%d creations at the runtime, %d by the kubelet", got, want)
	}
	t.Logf("%d calls of Version, %d of CreateContainer", versions.Load(), creates.Load())
}

func TestACreationInFlightEndsWhereItBeganAndTheRecordChangesHandsAfterIt(t *testing.T) {
	runtime := newBusyRuntime()
	u := newUpgraded(t, runtime)
	first := u.start()
	created := make(chan error, 1)
	go func() { created <- u.create(t.Context()) }()
	<-runtime.began

	address := freeAddress(t)
	u.start("--metrics-bind-address=" + address)
	eventually(t, "http://"+address+"/readyz", func(_ int, body string) bool {
		return strings.Contains(body, "[+]socket ok") && strings.Contains(body, "[+]runtime ok") &&
			strings.Contains(body, "[-]grants: ")
	})
	close(runtime.release)
	if err := <-created; err != nil {
		t.Errorf("the creation that was in flight: %v", err)
	}
	if err := first.Wait(); err != nil {
		t.Errorf("the first kubecri ended with %v", err)
	}
	eventually(t, "http://"+address+"/readyz", func(code int, _ string) bool { return code == http.StatusOK })
}

func TestAStreamThatNeverEndsIsEndedAndOpensAgainAtTheNextKubecri(t *testing.T) {
	u := newUpgraded(t, newBusyRuntime())
	first := u.start()
	open := func() runtimeapi.RuntimeService_GetContainerEventsClient {
		stream, err := u.kubelet.GetContainerEvents(t.Context(), &runtimeapi.GetEventsRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatalf("open the stream of events: %v", err)
		}
		return stream
	}
	stream := open()
	u.start()
	if event, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream went on with %v, %v; want Unavailable", event, err)
	}
	open()
	if err := first.Wait(); err != nil {
		t.Errorf("the first kubecri ended with %v", err)
	}
}
