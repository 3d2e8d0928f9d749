// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubedevice/kubedevice/test/binaries"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
)

// node is a node whose kubelet is this process.
type node struct {
	*cluster.Node
	runtimeapi.RuntimeServiceClient
	conn      *grpc.ClientConn // to what the kubelet calls
	mode      cluster.Mode
	program   cluster.Program // kubecri
	namespace string
	names     atomic.Int64
}

// deviceFiles stand for the devices of vendors whose variables the firewall guards then.
var deviceFiles = []string{"/dev/kfd", "/dev/hl0", "/dev/davinci_manager", declaredFile}

// takeOver stops the kubelet of the node with that index, and returns the node until the test ends.
func takeOver(ctx context.Context, t *testing.T, index int) *node {
	t.Helper()
	of := shared.Nodes[index]
	if err := of.Kubelet.Terminate(ctx); err != nil {
		t.Fatal(err)
	}
	if out, err := of.Run(ctx, "/bin/touch", deviceFiles...); err != nil {
		t.Fatal(err, out)
	}
	conn, err := grpc.NewClient("passthrough:"+of.Name, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), // kubecri is killed
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return of.Sandbox().Dial(ctx, "unix", of.Endpoint())
		}))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{
		Node: of, RuntimeServiceClient: runtimeapi.NewRuntimeServiceClient(conn), conn: conn,
		mode: modes[index], program: *options.Nodes[index].Kubecri,
		namespace: clustertest.Namespace(t, shared.Client),
	}
	t.Cleanup(func() {
		conn.Close()
		if err := of.Kubelet.Start(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// sandbox is the sandbox of a pod on a node.
type sandbox struct {
	node   *node
	id     string // empty if it was refused
	config *runtimeapi.PodSandboxConfig
}

// run prepares a sandbox of the pod and runs it. An error with a sandbox is the runtime's.
func (n *node) run(ctx context.Context, p pod) (*sandbox, error) {
	s, err := n.prepare(ctx, p)
	if err != nil {
		return nil, err
	}
	answer, err := n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: s.config})
	s.id = answer.GetPodSandboxId()
	return s, err
}

// prepare creates the pod in the API server, with the annotations of its sandbox left out, and
// returns a sandbox that is not in the runtime yet. A pod that requests devices is bound by the
// scheduler, and its sandbox has the allocation.
func (n *node) prepare(ctx context.Context, p pod) (*sandbox, error) {
	object := clustertest.IdlePod(n.namespace, fmt.Sprint("pod-", n.names.Add(1)), nil)
	object.Spec.Containers = nil
	for _, c := range p.containers {
		object.Spec.Containers = append(object.Spec.Containers, corev1.Container{
			Name: c.GetMetadata().GetName(), Image: image.Busybox,
		})
	}
	// The node has no kubelet that says that it is ready.
	object.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if p.requests == "" {
		object.Spec.NodeName = n.Name
	} else {
		kube.SetRequests(clustertest.On(n.Name, object), p.requests)
	}
	object, err := shared.Client.CreatePod(ctx, object)
	if err == nil && p.requests != "" {
		object, err = shared.Client.AwaitPod(ctx, object, "to be bound", kube.Scheduled)
	}
	if err != nil {
		return nil, err
	}
	s := &sandbox{node: n, config: &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: object.Name, Namespace: object.Namespace, Uid: string(object.UID),
		},
		Labels: p.labels, Annotations: maps.Clone(p.annotations), LogDirectory: "/var/log/pods/" + string(object.UID),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: filepath.Join(cgroups, n.Name, "pods"),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{
				Network: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_CONTAINER,
			}},
		},
	}}
	maps.Copy(s.config.Annotations, object.Annotations)
	s.config.Annotations["kubernetes.io/config.source"] = "api"
	return s, nil
}

// remove removes the pod and its sandbox with all containers.
func (s *sandbox) remove(ctx context.Context, t *testing.T) {
	t.Helper()
	err := shared.Client.CoreV1().Pods(s.node.namespace).Delete(ctx, s.config.GetMetadata().GetName(),
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
	if err != nil {
		t.Error(err)
	}
	if s.id == "" {
		return
	}
	if _, err := s.node.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.id}); err != nil {
		t.Error(err)
	}
	if _, err := s.node.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.id}); err != nil {
		t.Error(err)
	}
}

// passing are parts of refusals that are over when the kubelet tries again: the runtime has not
// read the file of a CDI device yet, this node does not know the pod or its containers yet, or the
// disk was too slow for the time that NRI gives.
var passing = []string{
	"unresolvable CDI devices kubedevice.io/", "not known to this node yet", "is not known: ", "are not known",
	"have not answered yet", "are still being inspected", "has not decided in the time",
}

func hasPart(err error, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(err.Error(), part) })
}

// create creates and starts a container, and tries again as the kubelet does. It returns its ID,
// and an error of the runtime's.
func (s *sandbox) create(ctx context.Context, c container) (id string, err error) {
	for {
		id, err = s.tryToCreate(ctx, c.ContainerConfig)
		if err == nil || !hasPart(err, passing) {
			return id, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return id, err
		}
	}
}

func (s *sandbox) tryToCreate(ctx context.Context, c *runtimeapi.ContainerConfig) (id string, err error) {
	c.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: s.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
	}
	answer, err := s.node.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: s.id, Config: c, SandboxConfig: s.config,
	})
	if err != nil {
		return "", err
	}
	_, err = s.node.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: answer.GetContainerId()})
	return answer.GetContainerId(), err
}

// config reads the config.json that runc got for a container that runs.
func (n *node) config(id string) (c config, err error) {
	content, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(n.Sandbox().PID()),
		"root/run/containerd/io.containerd.runtime.v2.task/k8s.io", id, "config.json"))
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(content, &c)
}

// giveImages gives the node's runtime random images, and returns them.
func (n *node) giveImages(ctx context.Context, t *testing.T, g generator) (random []randomImage) {
	t.Helper()
	for i := range 12 {
		random = append(random, g.image(fmt.Sprintf("localhost/random-%d:%d", g.seed, i)))
	}
	n.importImages(ctx, t, random...)
	return random
}

// importImages gives the node's runtime images.
func (n *node) importImages(ctx context.Context, t *testing.T, random ...randomImage) {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(shared.Programs(), binaries.Busybox))
	if err != nil {
		t.Fatal(err)
	}
	busybox := image.NewBusybox(program, "bin/sh\nbin/sleep\n")
	var images []image.Image
	for _, one := range random {
		images = append(images, busybox.Variant(one.name, func(config *v1.ImageConfig) { *config = one.config }))
	}
	// A directory that the node sees.
	file, err := os.Create(filepath.Join(n.Var(), "random.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := image.WriteArchive(file, runtime.GOARCH, images...); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.ImportImages(ctx, "/var/random.tar"); err != nil {
		t.Fatal(err)
	}
}

// awaitRegistered waits until the runtime asks kubecri about containers.
func (n *node) awaitRegistered(ctx context.Context, t *testing.T) {
	t.Helper()
	clustertest.Await(ctx, t, "kubecri is registered on "+n.Name, func() bool {
		ready, err := n.Get(ctx, "/readyz")
		return err == nil && strings.Contains(ready, "[+]nri ok")
	})
}

// switchOffFirewall replaces the node's kubecri by one without the device firewall, until the test
// ends.
func (n *node) switchOffFirewall(ctx context.Context, t *testing.T) {
	t.Helper()
	program := n.program
	program.Args = append(slices.Clone(program.Args), "--device-firewall=off")
	open := n.NewKubecri("kubecri-without-firewall", program)
	if err := n.Kubecri.Terminate(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		if err := errors.Join(open.Terminate(ctx), n.Kubecri.Start()); err != nil {
			t.Error(err)
		}
	})
	if err := open.Start(); err != nil {
		t.Fatal(err)
	}
	n.awaitRegistered(ctx, t)
}
