// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubedevice/kubedevice/test/image"
	"github.com/kubedevice/kubedevice/test/kube"
	"github.com/kubedevice/kubedevice/test/sandbox"
)

// Node is one node of the cluster, a sandbox of its own with the real programs in it.
type Node struct {
	// Name is the node's name in the cluster, IP its address.
	Name, IP string
	// Containerd, Kubecri and Kubelet are its programs. Kubecri is nil on a node without it.
	Containerd, Kubecri, Kubelet *Component

	cluster *Cluster
	options NodeOptions
	pods    string // the pods' range of addresses
	sandbox *sandbox.Sandbox
}

// kubecriSocket is where kubecri takes the kubelet's calls, inside a node.
const kubecriSocket = "/run/kubedevice/kubecri.sock"

func (c *Cluster) newNode(index int, options NodeOptions) *Node {
	node := &Node{Name: nodeName(index), IP: nodeIP(index), cluster: c, options: options, pods: podRange(index)}
	node.Containerd = node.NewComponent("containerd", node.containerd())
	if options.Kubecri != nil {
		node.Kubecri = node.NewKubecri("kubecri", *options.Kubecri)
	}
	node.Kubelet = node.NewComponent("kubelet",
		Program{Path: c.options.KubernetesProgram("kubelet"), Args: node.kubeletArgs()})
	return node
}

// Sandbox is the namespaces that the node lives in.
func (n *Node) Sandbox() *sandbox.Sandbox { return n.sandbox }

// Var is the directory of the machine that is /var on the node. It outlives a reboot of the node,
// not the cluster.
func (n *Node) Var() string { return n.sandbox.Var() }

// NewComponent returns a further program for the node, with a log file next to those of the others,
// to be started and killed as the test likes. A path that is not absolute is one of the cluster's
// own programs.
func (n *Node) NewComponent(name string, program Program) *Component {
	return n.cluster.newComponent(n.Sandbox, n.Name, name, program)
}

// containerdMetrics is the address of containerd 2's metrics, inside the node.
const containerdMetrics = "127.0.0.1:1338"

// RuntimeMetrics returns the metrics of containerd 2.
func (n *Node) RuntimeMetrics(ctx context.Context) (string, error) {
	return n.get(ctx, containerdMetrics+"/v1/metrics")
}

// Get returns what kubecri answers on its health port for a path such as /metrics, at any
// status.
func (n *Node) Get(ctx context.Context, path string) (string, error) {
	return n.get(ctx, "127.0.0.1:10261"+path)
}

// get returns what an address and path inside the node answers, at any status.
func (n *Node) get(ctx context.Context, address string) (string, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: n.sandbox.Dial}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address, nil)
	if err != nil {
		return "", err
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	return string(content), err
}

// Run runs a program on the node and returns what it prints. A path that is not absolute is one of
// the cluster's own programs.
func (n *Node) Run(ctx context.Context, path string, args ...string) (string, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(n.cluster.options.Programs, path)
	}
	var stdout, stderr bytes.Buffer
	err := n.sandbox.Run(ctx, sandbox.Command{Path: path, Args: args, Env: n.cluster.Environment(), Stdout: &stdout,
		Stderr: &stderr})
	if err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

func (n *Node) file(name string) string { return n.cluster.layout.config(n.Name, name) }

func (n *Node) kubeconfig() string { return n.cluster.kubeletKubeconfig(n.Name) }

func (c *Cluster) kubeletKubeconfig(node string) string {
	return c.layout.config(node, "kubelet.kubeconfig")
}

// KubeletClient returns a client with the certificate of the kubelet of a node, which may be one of
// Options.Kubelets, that reaches the API server from the machine.
func (c *Cluster) KubeletClient(node string) (*kube.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags(c.Client.Config.Host, c.kubeletKubeconfig(node))
	if err != nil {
		return nil, err
	}
	return kube.NewClient(config)
}

// Endpoint is the socket, inside the node, that the kubelet calls as its container runtime:
// kubecri's, or containerd's own on a node without kubecri, and where that is an NRI plugin.
func (n *Node) Endpoint() string {
	if n.options.Kubecri != nil && !n.options.nri() {
		return kubecriSocket
	}
	return containerdSocket
}

func (n *Node) kubeletArgs() []string {
	return append([]string{
		"--config=" + n.file("kubelet.yaml"),
		"--kubeconfig=" + n.kubeconfig(),
		"--hostname-override=" + n.Name,
		"--node-ip=" + n.IP,
		"--container-runtime-endpoint=unix://" + n.Endpoint(),
	}, n.options.KubeletArgs...)
}

// writeConfig writes the configuration files of the node's programs.
func (n *Node) writeConfig() error {
	kubelet, err := kubeletConfig(n.cluster.layout.pki("ca.crt"), n.cluster.cgroups.Sub(n.Name).Path(""))
	if err != nil {
		return err
	}
	files, err := n.containerdFiles()
	if err != nil {
		return err
	}
	pods, err := render(network, map[string]string{"Pods": n.pods})
	if err != nil {
		return err
	}
	files["kubelet.yaml"], files["cni/pods.conflist"] = kubelet, pods
	for name, content := range files {
		if err := write(n.file(name), content); err != nil {
			return err
		}
	}
	return nil
}

// open opens the node's sandbox, which is then part of the cluster's network.
func (n *Node) open(ctx context.Context) error {
	opened, err := sandbox.Open(ctx, n.cluster.sandboxConfig(n.Name))
	if err != nil {
		return err
	}
	n.sandbox = opened
	return plugNode(n.cluster.controlPlane, opened, n.IP, n.pods)
}

// start starts the node's programs, each when the one that it talks to can be reached, and gives
// the container runtime its images.
func (n *Node) start(ctx context.Context) error {
	if err := n.Containerd.Start(); err != nil {
		return err
	}
	if err := n.awaitSocket(ctx, n.Containerd, containerdSocket); err != nil {
		return err
	}
	if n.Kubecri != nil {
		if err := n.Kubecri.Start(); err != nil {
			return err
		}
		if err := n.awaitKubecri(ctx); err != nil {
			return err
		}
	}
	if err := n.Kubelet.Start(); err != nil {
		return err
	}
	return n.LoadImages(ctx)
}

// LoadImages gives the container runtime the images that every node has. A kubelet that is short of
// disk may have removed them.
func (n *Node) LoadImages(ctx context.Context) error {
	return n.ImportImages(ctx, filepath.Join(n.cluster.options.Programs, image.Archive))
}

// ImportImages gives the container runtime the images of an OCI archive, a file that the node sees.
func (n *Node) ImportImages(ctx context.Context, archive string) error {
	_, err := n.Run(ctx, filepath.Join(n.programs(), "ctr"), "--namespace=k8s.io", "images", "import", "--local",
		archive)
	return err
}

// Reboot is a power cut: everything on the node is killed at once, and comes up again with the
// files it had.
func (n *Node) Reboot(ctx context.Context) error {
	if err := n.sandbox.Close(ctx); err != nil {
		return fmt.Errorf("reboot %s: %w", n.Name, err)
	}
	if err := n.open(ctx); err != nil {
		return fmt.Errorf("reboot %s: %w", n.Name, err)
	}
	if err := n.start(ctx); err != nil {
		return fmt.Errorf("reboot %s: %w", n.Name, err)
	}
	return nil
}
