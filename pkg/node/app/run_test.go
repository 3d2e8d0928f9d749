// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/criproxy"
)

// asKubecri is the environment variable that makes this program be kubecri, with all its arguments.
const asKubecri = "KUBECRI_TEST_AS_KUBECRI"

func TestMain(m *testing.M) {
	if os.Getenv(asKubecri) != "" {
		os.Exit(Main())
	}
	goleak.VerifyTestMain(m)
}

// runtime is a container runtime that remembers what it was asked to create.
type runtime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	created chan *runtimeapi.CreateContainerRequest
	hold    chan struct{} // not nil: creations wait until it is closed
}

func (r *runtime) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "made-up"}, nil
}

func (r *runtime) ListContainers(context.Context,
	*runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{}, nil
}

func (r *runtime) ListPodSandbox(context.Context,
	*runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{}, nil
}

func (r *runtime) PodSandboxStatus(context.Context,
	*runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{}}, nil
}

func (r *runtime) CreateContainer(_ context.Context,
	request *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	r.created <- request
	if r.hold != nil {
		<-r.hold
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: "c1"}, nil
}

// imageService describes each image as one that sets nothing.
type imageService struct {
	runtimeapi.UnimplementedImageServiceServer
}

func (imageService) ImageStatus(_ context.Context,
	request *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{
		Image: &runtimeapi.Image{Id: request.GetImage().GetImage()},
		Info:  map[string]string{"info": `{"imageSpec":{"config":{}}}`},
	}, nil
}

// startRuntime serves a runtime at path until the test ends.
func startRuntime(t *testing.T, path string) *runtime {
	t.Helper()
	r := &runtime{created: make(chan *runtimeapi.CreateContainerRequest, 10)}
	serveRuntime(t, path, r)
	return r
}

// serveRuntime serves that runtime at path until the test ends.
func serveRuntime(t *testing.T, path string, r runtimeapi.RuntimeServiceServer) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, r)
	runtimeapi.RegisterImageServiceServer(server, imageService{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(listener) //nolint:errcheck // it ends with Stop
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// eventually gets the URL until the answer is as good says, and returns it.
func eventually(t *testing.T, url string, good func(code int, body string) bool) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	last := ""
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); {
		response, err := client.Get(url)
		if err != nil {
			last = err.Error()
			time.Sleep(10 * time.Millisecond)
			continue
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err == nil && good(response.StatusCode, string(body)) {
			return string(body)
		}
		last = string(body)
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s: not as it should be after 20s: %s", url, last)
	return ""
}

func TestTheLifeOfAStandaloneKubecri(t *testing.T) {
	dir := shortDir(t)
	options := NewOptions()
	options.NRISocket = "" // of this machine
	options.NodeName = "node-1"
	options.UpstreamEndpoint = "unix://" + filepath.Join(dir, "runtime.sock")
	options.ServeEndpoint = "unix://" + filepath.Join(dir, "run", "kubecri.sock")
	options.PluginDir = filepath.Join(dir, "no-plugins")
	options.StateDir = filepath.Join(dir, "state")
	options.MetricsAddress = freeAddress(t)

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, options) }()
	url := "http://" + options.MetricsAddress
	eventually(t, url+"/healthz", func(code int, _ string) bool { return code == http.StatusOK })
	eventually(t, url+"/readyz", func(code int, body string) bool {
		return code == http.StatusServiceUnavailable && strings.Contains(body, "[-]runtime: ") &&
			strings.Contains(body, "[+]socket ok")
	})
	runtime := startRuntime(t, filepath.Join(dir, "runtime.sock"))
	eventually(t, url+"/readyz", func(code int, _ string) bool { return code == http.StatusOK })

	conn, err := criproxy.Dial(filepath.Join(dir, "run", "kubecri.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	kubelet := runtimeapi.NewRuntimeServiceClient(conn)
	static := &runtimeapi.CreateContainerRequest{
		PodSandboxId: "s",
		Config:       &runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Name: "main"}},
		SandboxConfig: &runtimeapi.PodSandboxConfig{
			Annotations: map[string]string{"kubernetes.io/config.source": "file"},
		},
	}
	if _, err := kubelet.CreateContainer(ctx, static); err != nil {
		t.Fatalf("static pod: %v", err)
	}
	if diff := cmp.Diff(static, <-runtime.created, protocmp.Transform()); diff != "" {
		t.Errorf("static pod (-sent +received):\n%s", diff)
	}
	unknown := &runtimeapi.CreateContainerRequest{SandboxConfig: &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Uid: "u", Name: "p", Namespace: "default"},
		Annotations: map[string]string{"kubernetes.io/config.source": "api", deviceinfo.Annotation: "{}"},
	}}
	if _, err := kubelet.CreateContainer(ctx, unknown); status.Code(err) != codes.Unavailable {
		t.Errorf("a pod that nobody can know: %v, want Unavailable", err)
	}
	eventually(t, url+"/metrics", func(_ int, body string) bool {
		return strings.Contains(body, `kubecri_containers_total{outcome="passed"} 1`) &&
			strings.Contains(body, `kubecri_containers_total{outcome="refused"} 1`) &&
			strings.Contains(body,
				`kubecri_cri_calls_total{code="Unavailable",method="/runtime.v1.RuntimeService/CreateContainer"} 1`) &&
			strings.Contains(body, "kubecri_grants 0")
	})

	stop()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if _, err := net.Dial("unix", filepath.Join(dir, "run", "kubecri.sock")); err == nil {
		t.Error("the socket is still served")
	}
}

func TestAnAddressThatIsTakenIsServedWhenItIsFree(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, stop := context.WithCancel(klog.NewContext(context.Background(), logger))
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveHTTP(ctx, address, report(nil, nil), nil)
	}()
	log := logger.GetSink().(ktesting.Underlier).GetBuffer()
	for limit := time.Now().Add(20 * time.Second); !strings.Contains(log.String(), "Cannot serve health and metrics"); {
		if time.Now().After(limit) {
			t.Fatal("it does not say that the address is taken")
		}
		time.Sleep(10 * time.Millisecond)
	}
	taken.Close()
	eventually(t, "http://"+address, func(code int, _ string) bool { return code == http.StatusOK })
	stop()
	<-served
}
