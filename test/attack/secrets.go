// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/test/checkout"
)

// Names of what the scheduler has.
const (
	sealKeySecret          = "seal-key"
	schedulerAccount       = "scheduler"
	schedulerConfiguration = "scheduler-configuration"
)

// placeScheduler creates the pod of a scheduler, which waits for a control plane. One that may run
// anywhere does on the node scheduled.
func placeScheduler(ctx context.Context, p *trial, arguments struct {
	Anywhere bool `json:"anywhere"`
}) (Got, error) {
	if err := p.makeNamespace(ctx); err != nil {
		return Got{}, err
	}
	root, err := checkout.Root()
	if err != nil {
		return Got{}, err
	}
	manifest, err := os.ReadFile(filepath.Join(root, "deploy", "second-scheduler", "deployment.yaml"))
	if err != nil {
		return Got{}, err
	}
	var deployment appsv1.Deployment
	first, _, _ := bytes.Cut(manifest, []byte("\n---\n"))
	if err := yaml.UnmarshalStrict(first, &deployment); err != nil {
		return Got{}, err
	}
	core := p.admin.CoreV1()
	if _, err := core.Secrets(p.namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: sealKeySecret}, StringData: map[string]string{"private.pem": "secret"},
	}, metav1.CreateOptions{}); err != nil {
		return Got{}, err
	}
	if _, err := core.ConfigMaps(p.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: schedulerConfiguration}, Data: map[string]string{"scheduler.yaml": "x"},
	}, metav1.CreateOptions{}); err != nil {
		return Got{}, err
	}
	if _, err := core.ServiceAccounts(p.namespace).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: schedulerAccount}}, metav1.CreateOptions{}); err != nil {
		return Got{}, err
	}
	pod := p.pod("scheduler", 0)
	template := deployment.Spec.Template.Spec
	pod.Spec.NodeSelector, pod.Spec.Tolerations = template.NodeSelector, template.Tolerations
	pod.Spec.ServiceAccountName = schedulerAccount
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "key", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: sealKeySecret}}},
		{Name: "configuration", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: schedulerConfiguration}}}},
	}
	if arguments.Anywhere {
		p.created, err = p.admin.RunPod(ctx, pod)
		return Got{}, err
	}
	pod.Spec.Affinity = template.Affinity
	if pod, err = p.admin.CreatePod(ctx, pod); err != nil {
		return Got{}, err
	}
	p.created, err = p.admin.AwaitPod(ctx, pod, "to be left unscheduled", func(now *corev1.Pod) bool {
		return stateOf(now).Outcome == RefusedByScheduler
	})
	return Got{}, err
}

// publishAddress publishes an address where schedulers do, and removes it.
func publishAddress(ctx context.Context, p *trial, _ nothing) (Got, error) {
	client, err := p.client(ctx)
	if err != nil {
		return Got{}, err
	}
	leases := client.CoordinationV1().Leases(schedulerapi.Namespace)
	lease, err := leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: p.attempt.ID, Annotations: map[string]string{schedulerapi.AddressAnnotation: "{}"},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("attacker"),
			RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))},
	}, metav1.CreateOptions{})
	if err != nil {
		return Got{}, err
	}
	if err := leases.Delete(ctx, lease.Name, metav1.DeleteOptions{}); err != nil {
		return Got{}, err
	}
	return Got{Succeeds, fmt.Sprintf("it has the lease %s", lease.Name)}, nil
}
