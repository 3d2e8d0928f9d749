// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
	"github.com/kubedevice/kubedevice/test/cluster"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/sandbox"
)

// runtimeEndpoint is the runtime's as kubeadm writes it.
const runtimeEndpoint = "unix:///run/containerd/containerd.sock"

// story is the cluster's node as a test sees it, with a pod that must not notice anything.
type story struct {
	*testing.T
	ctx       context.Context
	node      *cluster.Node
	namespace string
	bystander *corev1.Pod
}

// begin returns the story on a node whose kubelet runs as kubeadm sets it up.
func begin(t *testing.T) *story {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	s := &story{T: t, ctx: ctx, node: shared.Nodes[0], namespace: clustertest.Namespace(t, shared.Client)}
	s.must(s.node.Kubelet.Terminate(ctx))
	s.must(os.MkdirAll(logsDir(), 0o755))
	own := filepath.Join(options.Dir, "config", s.node.Name)
	config, err := os.ReadFile(filepath.Join(own, "kubelet.yaml"))
	s.must(err)
	config = bytes.Replace(config, []byte(`containerRuntimeEndpoint: ""`),
		[]byte("# by kubeadm\ncontainerRuntimeEndpoint: "+runtimeEndpoint), 1)
	s.must(os.WriteFile(s.kubeletPath("config.yaml"), config, 0o644))
	s.must(os.WriteFile(s.kubeletPath("instance-config.yaml"),
		[]byte("containerRuntimeEndpoint: \""+runtimeEndpoint+"\"\n"), 0o600))
	s.must(os.WriteFile(kubeletFile(), []byte(strings.Join([]string{
		options.KubernetesProgram("kubelet"), "--config=/var/lib/kubelet/config.yaml",
		"--kubeconfig=" + filepath.Join(own, "kubelet.kubeconfig"), "--hostname-override=" + s.node.Name,
		"--node-ip=" + s.node.IP,
	}, " ")), 0o644))
	s.systemctl("stop", "kubelet.service")
	last := heartbeat(s.apiNode())
	for !last.Before(time.Now().Truncate(time.Second)) {
		clustertest.Pause(ctx, t, "the second of the last heartbeat to be over")
	}
	s.systemctl("start", "kubelet.service")
	_, err = shared.Client.AwaitNode(ctx, s.node.Name, "to be ready again", func(node *corev1.Node) bool {
		return heartbeat(node).After(last)
	})
	s.must(err)
	s.bystander = clustertest.RunPod(ctx, t, shared.Client, clustertest.IdlePod(s.namespace, "bystander", nil))
	return s
}

func (s *story) kubeletPath(name string) string {
	return filepath.Join(s.node.Var(), "lib", "kubelet", name)
}

func (s *story) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// command is a program on the node, which finds systemctl.
func (s *story) command(path string, args ...string) sandbox.Command {
	return sandbox.Command{
		Path: path, Args: args,
		Env: append(append(shared.Environment(), "UNITS="+unitsDir(), "KUBELET="+kubeletFile(), "LOGS="+logsDir(),
			"BROKEN="+brokenFile(),
			"PATH="+binDir()+":"+options.Programs+":/usr/sbin:/usr/bin:/sbin:/bin"), kubecri.Env...),
	}
}

func (s *story) systemctl(args ...string) {
	s.Helper()
	s.must(s.node.Sandbox().Run(s.ctx, s.command(filepath.Join(binDir(), "systemctl"), args...)))
}

// kubecri returns one of kubecri's commands with the flags that this node needs.
func (s *story) kubecri(verb string, args ...string) sandbox.Command {
	flags := []string{verb, "--output=json", "--systemd-dir=" + unitsDir(), "--kubecri-config=" + configFile()}
	if verb == "enrol" {
		flags = append(append(flags, "--program="+kubecri.Path, "--schedulers-replaced",
			"--plugins-for-other-devices"), kubecri.Args...)
	}
	return s.command(kubecri.Path, append(flags, args...)...)
}

// report runs kubecri enrol or leave and returns its report. The exit status must be the report's.
func (s *story) report(want enrolment.Outcome, verb string, args ...string) enrolment.Report {
	s.Helper()
	var stdout, stderr bytes.Buffer
	command := s.kubecri(verb, args...)
	command.Stdout, command.Stderr = &stdout, &stderr
	err := s.node.Sandbox().Run(s.ctx, command)
	code := 0
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		code = failed.ExitCode()
	} else if err != nil {
		s.Fatal(err)
	}
	report := enrolment.Report{}
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		s.Fatalf("kubecri %s: %v\n%s%s", verb, err, &stdout, &stderr)
	}
	if report.Outcome != want || code != report.ExitCode() {
		s.Fatalf("kubecri %s ends with %d: %s, want %s\n%s", verb, code, &stdout, want, &stderr)
	}
	return report
}

// killAt runs kubecri enrol and kills it with its line of that number, and reports whether there
// was one.
func (s *story) killAt(line int) bool {
	s.Helper()
	lines := make(lineWriter, 1000)
	command := s.kubecri("enrol")
	command.Stderr = lines
	process, err := s.node.Sandbox().Start(command)
	s.must(err)
	for {
		select {
		case <-lines:
			if line--; line < 0 {
				s.must(process.Signal(syscall.SIGKILL))
				<-process.Done()
				return true
			}
		case <-process.Done():
			return false
		case <-s.ctx.Done():
			s.Fatal(context.Cause(s.ctx))
		}
	}
}

// lineWriter receives a value for each line that is written.
type lineWriter chan struct{}

func (w lineWriter) Write(text []byte) (int, error) {
	for range bytes.Count(text, []byte("\n")) {
		w <- struct{}{}
	}
	return len(text), nil
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

// apiNode is the node as the API server has it.
func (s *story) apiNode() *corev1.Node {
	s.Helper()
	node, err := shared.Client.CoreV1().Nodes().Get(s.ctx, s.node.Name, metav1.GetOptions{})
	s.must(err)
	return node
}

// files are those that an enrolment may change, by path, with what they have.
func (s *story) files() map[string]string {
	s.Helper()
	found := map[string]string{}
	for _, path := range []string{s.kubeletPath("config.yaml"), s.kubeletPath("instance-config.yaml")} {
		info, err := os.Stat(path)
		s.must(err)
		content, err := os.ReadFile(path)
		s.must(err)
		found[path] = info.Mode().String() + "\n" + string(content)
	}
	state := filepath.Join(s.node.Var(), "lib", "kubedevice")
	for _, directory := range []string{unitsDir(), filepath.Dir(configFile()), state} {
		entries, err := os.ReadDir(directory)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			s.Fatal(err)
		}
		for _, entry := range entries {
			found[filepath.Join(directory, entry.Name())] = "there"
		}
	}
	return found
}

// checkBystander fails the test if the pod that requests no devices has noticed anything.
func (s *story) checkBystander() {
	s.Helper()
	pod, err := shared.Client.CoreV1().Pods(s.namespace).Get(s.ctx, s.bystander.Name, metav1.GetOptions{})
	s.must(err)
	now, before := pod.Status.ContainerStatuses[0], s.bystander.Status.ContainerStatuses[0]
	if now.ContainerID != before.ContainerID || now.RestartCount > 0 || pod.Status.Phase != corev1.PodRunning {
		s.Errorf("the pod without devices was %+v and is %s, %+v", before, pod.Status.Phase, now)
	}
}
