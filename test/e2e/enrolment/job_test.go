// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"os"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/test/clustertest"
	"github.com/kubedevice/kubedevice/test/image"
)

func TestJobsEnrolANodeAndHaveItLeave(t *testing.T) {
	s := begin(t)
	before := s.files()
	if said := s.runJob("enrol"); !strings.Contains(said, `"outcome": "done"`) {
		t.Errorf("the Job says: %s", said)
	}
	if len(s.files()) == len(before) {
		t.Error("nothing was installed")
	}
	s.checkBystander()
	if said := s.runJob("leave"); !strings.Contains(said, `"outcome": "done"`) {
		t.Errorf("the Job says: %s", said)
	}
	s.checkLeft()
	s.checkBystander()
}

// runJob runs one of the Jobs of deploy with this node's flags, and returns what it printed. It
// must succeed.
func (s *story) runJob(verb string) string {
	s.Helper()
	content, err := os.ReadFile("../../../deploy/jobs/" + verb + ".yaml")
	s.must(err)
	job := &batchv1.Job{}
	s.must(yaml.UnmarshalStrict([]byte(strings.ReplaceAll(string(content), "NODE", s.node.Name)), job))
	pod := &job.Spec.Template.Spec
	container := &pod.Containers[0]
	command := s.node.Kubecri(verb)
	if container.Args[0] != "/usr/local/bin/kubecri" || container.Args[1] != verb {
		s.Fatalf("the Job runs %q", container.Args)
	}
	container.Image, container.Args = image.Busybox, append([]string{command.Path}, command.Args...)
	environment := map[string]string{}
	for _, variable := range command.Env {
		name, value, _ := strings.Cut(variable, "=")
		environment[name] = value
	}
	for name, value := range environment {
		container.Env = append(container.Env, corev1.EnvVar{Name: name, Value: value})
	}
	job, err = shared.Client.BatchV1().Jobs(job.Namespace).Create(s.ctx, job, metav1.CreateOptions{})
	s.must(err)
	defer func() {
		propagation := metav1.DeletePropagationBackground
		s.must(shared.Client.BatchV1().Jobs(job.Namespace).Delete(s.ctx, job.Name,
			metav1.DeleteOptions{PropagationPolicy: &propagation}))
	}()
	clustertest.Await(s.ctx, s, "the end of Job "+job.Name, func() bool {
		job, err = shared.Client.BatchV1().Jobs(job.Namespace).Get(s.ctx, job.Name, metav1.GetOptions{})
		s.must(err)
		return job.Status.Succeeded+job.Status.Failed > 0
	})
	pods, err := shared.Client.CoreV1().Pods(job.Namespace).List(s.ctx, metav1.ListOptions{
		LabelSelector: batchv1.JobNameLabel + "=" + job.Name,
	})
	s.must(err)
	if len(pods.Items) != 1 {
		s.Fatalf("Job %s has %d pods", job.Name, len(pods.Items))
	}
	said, err := shared.Client.Logs(s.ctx, &pods.Items[0], container.Name)
	s.must(err)
	if job.Status.Failed > 0 {
		s.Errorf("Job %s failed: %s", job.Name, said)
	}
	return said
}
