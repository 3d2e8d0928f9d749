// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"bytes"
	"context"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/node/enrolment"
	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/enrolments"
)

// story is the cluster's node as a test sees it, with a pod that must not notice anything.
type story struct {
	*testing.T
	ctx       context.Context
	node      *enrolments.Node
	namespace string
	bystander *corev1.Pod
}

// begin returns the story on a node whose kubelet runs as kubeadm sets it up.
func begin(t *testing.T) *story {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	s := &story{T: t, ctx: ctx, node: node, namespace: clustertest.Namespace(t, shared.Client)}
	s.must(s.node.Begin(ctx))
	s.bystander = clustertest.RunPod(ctx, t, shared.Client, clustertest.IdlePod(s.namespace, "bystander", nil))
	return s
}

func (s *story) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// report runs kubecri enrol or leave and returns its report, which must have this outcome.
func (s *story) report(want enrolment.Outcome, verb string, args ...string) *enrolment.Report {
	s.Helper()
	var progress bytes.Buffer
	report, err := s.node.Report(s.ctx, &progress, verb, args...)
	if err != nil {
		s.Fatalf("%v\n%s", err, &progress)
	}
	if report.Outcome != want {
		s.Fatalf("kubecri %s: %+v, want %s\n%s", verb, report, want, &progress)
	}
	return report
}

// killAt runs kubecri enrol and kills it with its line of that number, and reports whether there
// was one.
func (s *story) killAt(line int) bool {
	s.Helper()
	lines := make(lineWriter, 1000)
	command := s.node.Kubecri("enrol")
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

// apiNode is the node as the API server has it.
func (s *story) apiNode() *corev1.Node {
	s.Helper()
	node, err := s.node.API(s.ctx)
	s.must(err)
	return node
}

// files are those that an enrolment may change.
func (s *story) files() map[string]string {
	s.Helper()
	files, err := s.node.Files()
	s.must(err)
	return files
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
