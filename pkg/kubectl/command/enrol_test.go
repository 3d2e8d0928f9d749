// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	clienttesting "k8s.io/client-go/testing"
)

// enrolling is a cluster with the node gpu-7, on which the pod of each Job ends with a status.
func enrolling(status int32) *fixture {
	f := newFixture(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-7"}})
	f.client.PrependReactor("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		job := action.(clienttesting.CreateAction).GetObject().(*batchv1.Job)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: job.Name + "-x", Namespace: job.Namespace, Labels: map[string]string{batchv1.JobNameLabel: job.Name},
		}}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: status}},
		}}
		return false, nil, f.client.Tracker().Add(pod)
	})
	f.client.PrependReactor("get", "pods/log", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &runtime.Unknown{Raw: []byte("the report\n")}, nil
	})
	return f
}

// created returns the Job that was created.
func (f *fixture) created(t *testing.T) *batchv1.Job {
	t.Helper()
	for _, action := range f.client.Actions() {
		if create, ok := action.(clienttesting.CreateAction); ok && action.Matches("create", "jobs") {
			return create.GetObject().(*batchv1.Job)
		}
	}
	t.Fatalf("no Job is created: %v", f.client.Actions())
	return nil
}

func TestANodeIsEnrolledAndLeavesByAJobWhoseReportIsPrinted(t *testing.T) {
	for line, want := range map[string][]string{
		"enrol gpu-7": {"/usr/local/bin/kubecri", "enrol"},
		"enrol gpu-7 -- --schedulers-replaced": {
			"/usr/local/bin/kubecri", "enrol", "--schedulers-replaced",
		},
		"enrol gpu-7 --program /opt/kubecri -- --dry-run -x": {"/opt/kubecri", "enrol", "--dry-run", "-x"},
		"leave gpu-7": {"/usr/local/bin/kubecri", "leave"},
	} {
		t.Run(line, func(t *testing.T) {
			f := enrolling(0)
			stdout, stderr, status := f.run(t.Context(), line)
			if status != 0 || stdout != "the report\n" || stderr != "" {
				t.Errorf("exit status %d, %q, %q", status, stdout, stderr)
			}
			job := f.created(t)
			pod := job.Spec.Template.Spec
			if diff := cmp.Diff(want, pod.Containers[0].Args); diff != "" || pod.NodeName != "gpu-7" ||
				job.Name != "kubecri-"+line[:5]+"-gpu-7" || job.Namespace != "kube-system" {
				t.Errorf("the Job %s/%s is on node %s, arguments (-want +got): %s", job.Namespace, job.Name,
					pod.NodeName, diff)
			}
			left, err := f.client.BatchV1().Jobs("").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(left.Items) > 0 {
				t.Errorf("%d Jobs are left, %v", len(left.Items), err)
			}
		})
	}
}

func TestTheExitStatusIsThatOfKubecri(t *testing.T) {
	if stdout, _, status := enrolling(2).run(t.Context(), "enrol gpu-7"); status != 2 || stdout != "the report\n" {
		t.Errorf("exit status %d, %q", status, stdout)
	}
}

// The Job's name is a label of its pod, which has at most 63 characters.
func TestTheJobOfANodeWithALongNameHasAShorterOne(t *testing.T) {
	begin := strings.Repeat("x", 47) // all that the name has of it, with a dash and a hash
	seen := map[string]bool{}
	for node, want := range map[string]string{
		begin + "yz": "kubecri-enrol-" + begin + "yz", begin + "yza": "", begin + "yzb": "",
		strings.Repeat("x.", 126) + "x": "",
	} {
		o := &enrolOptions{verb: "enrol"}
		job, err := o.job(node, nil)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := validation.IsValidLabelValue(job.Name); len(wrong) > 0 || want != "" && job.Name != want {
			t.Errorf("the Job of node %s is %s: %v", node, job.Name, wrong)
		}
		if !strings.HasPrefix(job.Name, "kubecri-enrol-x") || seen[job.Name] {
			t.Errorf("the Job of node %s is %s, as that of another one", node, job.Name)
		}
		seen[job.Name] = true
		if on := job.Spec.Template.Spec.NodeName; on != node {
			t.Errorf("the Job of node %s is on node %s", node, on)
		}
	}
}

func TestAfterAnInterruptionTheJobStaysAndItIsSaidWhere(t *testing.T) {
	f := newFixture(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gpu-7"}})
	ctx, interrupt := context.WithCancel(t.Context())
	f.client.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		interrupt()
		return false, nil, nil
	})
	_, stderr, status := f.run(ctx, "enrol gpu-7")
	want := "kubectl logs -n kube-system -f job/kubecri-enrol-gpu-7"
	if status != 1 || !strings.Contains(stderr, want) {
		t.Errorf("exit status %d, %q, want %q", status, stderr, want)
	}
	jobs, err := f.client.BatchV1().Jobs("").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(jobs.Items) != 1 {
		t.Errorf("%d Jobs, %v", len(jobs.Items), err)
	}
}

func TestNothingIsEnrolledWithoutANodeOrTheRight(t *testing.T) {
	forbidden := enrolling(0)
	forbidden.client.PrependReactor("create", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "jobs"}, "", errors.New("no"))
	})
	for line, test := range map[string]struct {
		f    *fixture
		want string
	}{
		"enrol gpu-8":           {enrolling(0), `nodes "gpu-8" not found`},
		"enrol":                 {enrolling(0), "name one node"},
		"enrol gpu-7 gpu-8":     {enrolling(0), "name one node"},
		"leave -- gpu-7":        {enrolling(0), "name one node"},
		"leave gpu-7 x -- --no": {enrolling(0), "name one node"},
		"leave gpu-7":           {forbidden, "kubectl auth can-i create jobs.batch -n kube-system"},
	} {
		_, stderr, status := test.f.run(t.Context(), line)
		if status != 1 || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit status %d, %q, want %q", line, status, stderr, test.want)
		}
		jobs, err := test.f.client.BatchV1().Jobs("").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(jobs.Items) > 0 {
			t.Errorf("%s: %d Jobs, %v", line, len(jobs.Items), err)
		}
	}
}

func TestTheJobIsPrintedAndNothingIsDone(t *testing.T) {
	f := enrolling(0)
	stdout, _, status := f.run(t.Context(), "enrol gpu-7 --print --image registry.example/tools")
	if status != 0 || len(f.client.Actions()) > 0 {
		t.Errorf("exit status %d, it does %v", status, f.client.Actions())
	}
	for _, want := range []string{
		"name: kubecri-enrol-gpu-7\n", "nodeName: gpu-7\n", "image: registry.example/tools\n",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("it lacks %q:\n%s", want, stdout)
		}
	}
}
