// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/pluginload"
	"github.com/kubedevice/kubedevice/pkg/sdk/device"
	"github.com/kubedevice/kubedevice/pkg/sdk/types"
)

const (
	gpuCount types.ResourceName = "example.com/gpu"
	gpuCard  types.ResourceName = "resource/group/gpu/0/cards"
)

// oneGPU is a device plugin with one GPU, whose device node is one that every machine has.
type oneGPU struct{}

func (oneGPU) New() error      { return nil }
func (oneGPU) Start() error    { return nil }
func (oneGPU) GetName() string { return "one-gpu" }

func (oneGPU) UpdateNodeInfo(info *types.NodeInfo) error {
	info.Capacity[gpuCard], info.Allocatable[gpuCard] = 1, 1
	info.KubeCap[gpuCount], info.KubeAlloc[gpuCount] = 1, 1
	return nil
}

func (oneGPU) Allocate(*types.PodInfo, *types.ContainerInfo) ([]device.Mount, []string, map[string]string, error) {
	return nil, []string{"/dev/null"}, nil, nil
}

func loadOneGPU(context.Context) ([]pluginload.Loaded[device.Device], []error) {
	return []pluginload.Loaded[device.Device]{{Name: "one-gpu", Plugin: oneGPU{}}}, nil
}

// apiServer is as much of an API server as kubecri uses: one node, its pods, and events that it
// forgets.
type apiServer struct {
	*httptest.Server
	pods []corev1.Pod

	mu   sync.Mutex
	node map[string]any
	hung chan struct{} // not nil: requests wait until it is closed
}

// startAPIServer starts a server with node-1 and these pods, which ends with the test, and returns
// it and a kubeconfig.
func startAPIServer(t *testing.T, pods ...corev1.Pod) (server *apiServer, kubeconfig string) {
	t.Helper()
	server = &apiServer{pods: pods, node: map[string]any{
		"kind": "Node", "apiVersion": "v1", "metadata": map[string]any{"name": "node-1", "uid": "n",
			"resourceVersion": "1"},
	}}
	server.Server = httptest.NewServer(server)
	t.Cleanup(server.stop)
	kubeconfig = write(t, filepath.Join(t.TempDir(), "kubelet.conf"),
		fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c, user: u}}],
users: [{name: u}]}`, server.URL))
	return server, kubeconfig
}

// hang makes all requests wait, also those to come.
func (s *apiServer) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung = make(chan struct{})
}

// stop ends the server; what waits is cut off.
func (s *apiServer) stop() {
	s.mu.Lock()
	if s.hung != nil {
		close(s.hung)
		s.hung = nil
	}
	s.mu.Unlock()
	s.CloseClientConnections()
	s.Close()
}

func (s *apiServer) hanging() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hung
}

// ServeHTTP answers lists, watches, which say what there is and then nothing more, and patches.
func (s *apiServer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if hung := s.hanging(); hung != nil {
		select {
		case <-hung:
		case <-request.Context().Done():
		}
		return
	}
	kind, objects := "PodList", []any{}
	if strings.HasPrefix(request.URL.Path, "/api/v1/nodes") {
		kind = "NodeList"
		objects = append(objects, s.patched(request))
	} else if request.Method == http.MethodGet {
		for _, pod := range s.pods {
			pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
			objects = append(objects, pod)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	encode := func(v any) {
		json.NewEncoder(w).Encode(v) //nolint:errcheck // the client may have gone
	}
	switch {
	case request.Method != http.MethodGet && kind == "NodeList":
		encode(objects[0])
	case request.Method != http.MethodGet:
		w.WriteHeader(http.StatusCreated)
		encode(map[string]any{"kind": "Event", "apiVersion": "v1"})
	case request.URL.Query().Get("watch") == "":
		encode(map[string]any{"kind": kind, "apiVersion": "v1",
			"metadata": map[string]any{"resourceVersion": "1"}, "items": objects})
	default:
		for _, object := range objects {
			encode(map[string]any{"type": "ADDED", "object": object})
		}
		encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{
			"kind": strings.TrimSuffix(kind, "List"), "apiVersion": "v1",
			"metadata": map[string]any{
				"resourceVersion": "1", "annotations": map[string]any{metav1.InitialEventsAnnotationKey: "true"},
			},
		}})
		w.(http.Flusher).Flush()
		<-request.Context().Done()
	}
}

// patched returns the node with the request's patch, if it has one.
func (s *apiServer) patched(request *http.Request) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	patch := map[string]any{}
	if request.Method == http.MethodPatch && json.NewDecoder(request.Body).Decode(&patch) == nil {
		s.node = merged(s.node, patch)
	}
	return s.node
}

// merged returns an object with a merge patch applied.
func merged(object, patch map[string]any) map[string]any {
	result := map[string]any{}
	for key, value := range object {
		result[key] = value
	}
	for key, value := range patch {
		below, ok := value.(map[string]any)
		switch {
		case value == nil:
			delete(result, key)
		case ok:
			before, _ := result[key].(map[string]any)
			result[key] = merged(before, below)
		default:
			result[key] = value
		}
	}
	return result
}

// shortDir returns a directory whose path leaves room for those of sockets below it, which may have
// no more than 107 bytes.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kubecri-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
