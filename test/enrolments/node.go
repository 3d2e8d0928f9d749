// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolments

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/sandbox"
)

// RuntimeEndpoint is the runtime's as kubeadm writes it.
const RuntimeEndpoint = "unix:///run/containerd/containerd.sock"

// systemctl stands in for systemd's: nodes of a test have none.
//
//go:embed systemctl
var systemctl []byte

// Node is a node of a cluster whose kubelet runs as kubeadm sets it up, under a fake
// systemd, and which can be enrolled.
type Node struct {
	*cluster.Node
	cluster *cluster.Cluster
	dir     string
	options cluster.Options
	kubecri cluster.Program
	flags   []string
}

// TakeKubecri takes kubecri off a node that is to be enrolled, and returns the program to enrol it
// with, which knows the node's simulated GPUs.
func TakeKubecri(node *cluster.NodeOptions) cluster.Program {
	kubecri := *node.Kubecri
	kubecri.Env = []string{cluster.InventoryVariable + "=" + node.Inventory}
	node.Kubecri, node.Inventory = nil, ""
	return kubecri
}

// NewNode returns a node of a cluster that was started with options, and without kubecri. dir is a
// directory for what systemd and an administrator would have on the node; the cluster must see it.
// kubecri is the program to enrol the node with, and flags are further ones for kubecri enrol.
func NewNode(c *cluster.Cluster, n *cluster.Node, options cluster.Options, dir string, kubecri cluster.Program,
	flags ...string) (*Node, error) {
	node := &Node{Node: n, cluster: c, dir: dir, options: options, kubecri: kubecri, flags: flags}
	for _, directory := range []string{dir, node.units(), node.bin()} {
		if err := os.MkdirAll(directory, 0o755); err != nil {
			return nil, err
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(node.bin(), "listen"),
		"github.com/kubedevice/kubedevice/test/cmd/listen")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build what holds kubecri's socket: %w\n%s", err, said)
	}
	return node, errors.Join(os.Chmod(dir, 0o755), os.MkdirAll(node.logs(), 0o755),
		os.WriteFile(filepath.Join(node.bin(), "systemctl"), systemctl, 0o755))
}

func (n *Node) bin() string            { return filepath.Join(n.dir, "bin") }
func (n *Node) units() string          { return filepath.Join(n.dir, "units") }
func (n *Node) logs() string           { return filepath.Join(n.options.Dir, "logs", "systemd-"+n.Name) }
func (n *Node) kubeletCommand() string { return filepath.Join(n.dir, "kubelet-command") }
func (n *Node) configuration() string  { return filepath.Join(n.dir, "kubedevice", "kubecri.yaml") }
func (n *Node) broken() string         { return filepath.Join(n.dir, "broken") }

// KubeletPath is the path of a file of the kubelet's.
func (n *Node) KubeletPath(name string) string { return filepath.Join(n.Var(), "lib", "kubelet", name) }

// Begin has the kubelet run as kubeadm sets it up, and returns when the node is ready.
func (n *Node) Begin(ctx context.Context) error {
	if err := n.Kubelet.Terminate(ctx); err != nil {
		return err
	}
	own := filepath.Join(n.options.Dir, "config", n.Name)
	config, err := os.ReadFile(filepath.Join(own, "kubelet.yaml"))
	if err != nil {
		return err
	}
	config = bytes.Replace(config, []byte(`containerRuntimeEndpoint: ""`),
		[]byte("# by kubeadm\ncontainerRuntimeEndpoint: "+RuntimeEndpoint), 1)
	if err := errors.Join(
		os.WriteFile(n.KubeletPath("config.yaml"), config, 0o644),
		os.WriteFile(n.KubeletPath("instance-config.yaml"),
			[]byte("containerRuntimeEndpoint: \""+RuntimeEndpoint+"\"\n"), 0o600),
		os.WriteFile(n.kubeletCommand(), []byte(strings.Join([]string{
			n.options.KubernetesProgram("kubelet"), "--config=/var/lib/kubelet/config.yaml",
			"--kubeconfig=" + filepath.Join(own, "kubelet.kubeconfig"), "--hostname-override=" + n.Name,
			"--node-ip=" + n.IP,
		}, " ")), 0o644),
		n.Systemctl(ctx, "stop", "kubelet.service"),
	); err != nil {
		return err
	}
	node, err := n.API(ctx)
	if err != nil {
		return err
	}
	// The API server has no finer times than seconds.
	last := heartbeat(node)
	for !last.Before(time.Now().Truncate(time.Second)) {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if err := n.Systemctl(ctx, "start", "kubelet.service"); err != nil {
		return err
	}
	_, err = n.cluster.Client.AwaitNode(ctx, n.Name, "to be ready again", func(node *corev1.Node) bool {
		return heartbeat(node).After(last)
	})
	return err
}

// heartbeat is when the kubelet last reported that the node is ready, or the zero time.
func heartbeat(node *corev1.Node) time.Time {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return condition.LastHeartbeatTime.Time
		}
	}
	return time.Time{}
}

// API returns the node as the API server has it.
func (n *Node) API(ctx context.Context) (*corev1.Node, error) {
	return n.cluster.Client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
}

// BreakKubelet makes a kubelet that is to call kubecri do nothing, from its next start on, or
// repairs it.
func (n *Node) BreakKubelet(broken bool) error {
	if broken {
		return os.WriteFile(n.broken(), nil, 0o644)
	}
	return os.Remove(n.broken())
}

// command is a program on the node, which finds systemctl.
func (n *Node) command(path string, args ...string) sandbox.Command {
	return sandbox.Command{
		Path: path, Args: args,
		Env: append(append(n.cluster.Environment(), "UNITS="+n.units(), "KUBELET="+n.kubeletCommand(),
			"LOGS="+n.logs(), "BROKEN="+n.broken(),
			"PATH="+n.bin()+":"+n.options.Programs+":/usr/sbin:/usr/bin:/sbin:/bin"), n.kubecri.Env...),
	}
}

// Systemctl runs systemctl on the node.
func (n *Node) Systemctl(ctx context.Context, args ...string) error {
	return n.Sandbox().Run(ctx, n.command(filepath.Join(n.bin(), "systemctl"), args...))
}

// Kubecri returns kubecri enrol or leave, with the flags that this node needs.
func (n *Node) Kubecri(verb string, args ...string) sandbox.Command {
	flags := []string{verb, "--output=json", "--systemd-dir=" + n.units(), "--kubecri-config=" + n.configuration()}
	if verb == "enrol" {
		flags = append(append(append(flags, "--program="+n.kubecri.Path, "--schedulers-replaced"), n.flags...),
			n.kubecri.Args...)
	}
	return n.command(n.kubecri.Path, append(flags, args...)...)
}

// Report runs kubecri enrol or leave and returns its report, whose exit status it must have.
// progress gets what it prints meanwhile.
func (n *Node) Report(ctx context.Context, progress io.Writer, verb string, args ...string) (*enrolment.Report, error) {
	command := n.Kubecri(verb, args...)
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, progress
	err := n.Sandbox().Run(ctx, command)
	code := 0
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		code = failed.ExitCode()
	} else if err != nil {
		return nil, err
	}
	report := &enrolment.Report{}
	if err := json.Unmarshal(printed.Bytes(), report); err != nil {
		return nil, fmt.Errorf("kubecri %s ends with %d: %w\n%s", verb, code, err, &printed)
	}
	if code != report.ExitCode() {
		return nil, fmt.Errorf("kubecri %s ends with %d, want %d\n%s", verb, code, report.ExitCode(), &printed)
	}
	return report, nil
}

// Files are those that an enrolment may change, by path, with what they have.
func (n *Node) Files() (map[string]string, error) {
	found := map[string]string{}
	for _, path := range []string{n.KubeletPath("config.yaml"), n.KubeletPath("instance-config.yaml")} {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		found[path] = info.Mode().String() + "\n" + string(content)
	}
	state := filepath.Join(n.Var(), "lib", "kubedevice")
	for _, directory := range []string{n.units(), filepath.Dir(n.configuration()), state} {
		entries, err := os.ReadDir(directory)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, entry := range entries {
			found[filepath.Join(directory, entry.Name())] = "there"
		}
	}
	return found, nil
}

// KubeletStarts returns when the fake systemd has started the kubelet, in order.
func (n *Node) KubeletStarts() (starts []time.Time, err error) {
	content, err := os.ReadFile(filepath.Join(n.logs(), "kubelet.service.starts"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(content)) {
		seconds, err := strconv.ParseFloat(strings.TrimSpace(line), 64)
		if err != nil {
			return nil, err
		}
		starts = append(starts, time.UnixMicro(int64(seconds*1e6)))
	}
	if len(starts) == 0 {
		return nil, errors.New("the kubelet of " + n.Name + " was never started")
	}
	return starts, nil
}
