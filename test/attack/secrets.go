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
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/test/checkout"
	"github.com/kubedevice/kubedevice/test/kube"
)

// secrets are attempts to use the credentials of a worker node for what the second scheduler has. A
// pod stands for the scheduler: it has the place that deploy/second-scheduler gives it, a Secret
// and a service account. No worker gets it, so no kubelet of a worker may read what it has.
func secrets() []*Attempt {
	const anywhere = "the scheduler may run on any node"
	attempt := func(id, what string, read func(ctx context.Context, s *Stage, kubelet *kube.Client,
		pod *corev1.Pod) error) *Attempt {
		try := func(placed bool) Try {
			return func(ctx context.Context, s *Stage) (Got, error) {
				pod, err := s.scheduler(ctx, placed)
				if err != nil {
					return Got{}, err
				}
				kubelet, err := s.cluster.KubeletClient(s.node(scheduled).Name)
				if err != nil {
					return Got{}, err
				}
				err = read(ctx, s, kubelet, pod)
				if got, refused, err := refusal(err); refused || err != nil {
					return got, err
				}
				return Got{Succeeds, "it has what the scheduler has"}, nil
			}
		}
		return &Attempt{
			ID: id, Who: Kubelet, What: what, Defence: Placement, Try: try(true),
			Want: everywhere(RefusedByAPIServer, "no relationship found between node 'node-1'"),
			Off:  Off{How: anywhere, Try: try(false)},
		}
	}
	first := attempt("scheduler-seal-key", "reads the key for seals with the credentials of a worker",
		func(ctx context.Context, s *Stage, kubelet *kube.Client, _ *corev1.Pod) error {
			_, err := kubelet.CoreV1().Secrets(s.namespace).Get(ctx, sealKeySecret, metav1.GetOptions{})
			return err
		})
	first.Sample = true
	token := func(ctx context.Context, s *Stage, kubelet *kube.Client, pod *corev1.Pod) (string, error) {
		answer, err := kubelet.CoreV1().ServiceAccounts(s.namespace).CreateToken(ctx, schedulerAccount,
			&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name,
					UID: pod.UID},
			}}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		return answer.Status.Token, nil
	}
	return []*Attempt{
		first,
		attempt("scheduler-pod-token", "requests the scheduler's token with them",
			func(ctx context.Context, s *Stage, kubelet *kube.Client, pod *corev1.Pod) error {
				_, err := token(ctx, s, kubelet, pod)
				return err
			}),
		attempt("scheduler-configuration", "reads the scheduler's configuration with them",
			func(ctx context.Context, s *Stage, kubelet *kube.Client, _ *corev1.Pod) error {
				_, err := kubelet.CoreV1().ConfigMaps(s.namespace).Get(ctx, schedulerConfiguration, metav1.GetOptions{})
				return err
			}),
		{
			ID: "scheduler-lease", Who: Kubelet, Defence: Rights,
			What: "takes the lease by which a scheduler leads, with the credentials of a worker",
			Want: everywhere(RefusedByAPIServer, "is forbidden"),
			Try: leaseOf(func(_ context.Context, s *Stage) (*kube.Client, error) {
				return s.cluster.KubeletClient(s.node(scheduled).Name)
			}),
			Off: Off{How: "it has the rights of an administrator", Try: leaseOf(func(_ context.Context,
				s *Stage) (*kube.Client, error) {
				return s.admin, nil
			})},
		},
		{
			ID: "scheduler-address", Who: Tenant, Defence: Rights,
			What: "publishes an address of its own for the scheduler, to which kubectl device would go",
			Want: everywhere(RefusedByAPIServer, `cannot create resource "leases"`),
			Try:  addressOf((*Stage).tenant),
			Off: Off{How: "it has the rights of an administrator", Try: addressOf(func(s *Stage,
				ctx context.Context) (*kube.Client, error) {
				return s.admin, s.makeNamespace(ctx)
			})},
		},
	}
}

// Names of what the scheduler has.
const (
	sealKeySecret          = "seal-key"
	schedulerAccount       = "scheduler"
	schedulerConfiguration = "scheduler-configuration"
)

// scheduler creates the pod of a scheduler. Where it is not placed, it may run on any node, and
// does on the node scheduled.
func (s *Stage) scheduler(ctx context.Context, placed bool) (*corev1.Pod, error) {
	if err := s.makeNamespace(ctx); err != nil {
		return nil, err
	}
	root, err := checkout.Root()
	if err != nil {
		return nil, err
	}
	manifest, err := os.ReadFile(filepath.Join(root, "deploy", "second-scheduler", "deployment.yaml"))
	if err != nil {
		return nil, err
	}
	var deployment appsv1.Deployment
	first, _, _ := bytes.Cut(manifest, []byte("\n---\n"))
	if err := yaml.UnmarshalStrict(first, &deployment); err != nil {
		return nil, err
	}
	core := s.admin.CoreV1()
	if _, err := core.Secrets(s.namespace).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: sealKeySecret}, StringData: map[string]string{"private.pem": "secret"},
	}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if _, err := core.ConfigMaps(s.namespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: schedulerConfiguration}, Data: map[string]string{"scheduler.yaml": "x"},
	}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	if _, err := core.ServiceAccounts(s.namespace).Create(ctx, &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: schedulerAccount}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	pod := s.pod("scheduler", 0)
	template := deployment.Spec.Template.Spec
	pod.Spec.NodeSelector, pod.Spec.Tolerations = template.NodeSelector, template.Tolerations
	pod.Spec.ServiceAccountName = schedulerAccount
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "key", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: sealKeySecret}}},
		{Name: "configuration", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: schedulerConfiguration}}}},
	}
	if !placed {
		return s.admin.RunPod(ctx, pod)
	}
	pod.Spec.Affinity = template.Affinity
	if pod, err = s.admin.CreatePod(ctx, pod); err != nil {
		return nil, err
	}
	return s.admin.AwaitPod(ctx, pod, "to be left unscheduled", func(now *corev1.Pod) bool {
		return stateOf(now).Outcome == RefusedByScheduler
	})
}

// leaseOf takes a lease of a namespace of programs.
func leaseOf(as func(ctx context.Context, s *Stage) (*kube.Client, error)) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		if err := s.makeNamespace(ctx); err != nil {
			return Got{}, err
		}
		lease, err := s.admin.CoordinationV1().Leases(s.namespace).Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "kubedevice-scheduler"}}, metav1.CreateOptions{})
		if err != nil {
			return Got{}, err
		}
		client, err := as(ctx, s)
		if err != nil {
			return Got{}, err
		}
		lease.Spec.HolderIdentity = ptr.To("attacker")
		_, err = client.CoordinationV1().Leases(s.namespace).Update(ctx, lease, metav1.UpdateOptions{})
		if got, refused, err := refusal(err); refused || err != nil {
			return got, err
		}
		return Got{Succeeds, "it holds the lease"}, nil
	}
}

// addressOf publishes an address in the namespace where schedulers do.
func addressOf(as func(s *Stage, ctx context.Context) (*kube.Client, error)) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		client, err := as(s, ctx)
		if err != nil {
			return Got{}, err
		}
		leases := client.CoordinationV1().Leases(schedulerapi.Namespace)
		lease, err := leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{
				Name: s.attempt.ID, Annotations: map[string]string{schedulerapi.AddressAnnotation: "{}"},
			},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("attacker"),
				RenewTime: ptr.To(metav1.NewMicroTime(time.Now()))},
		}, metav1.CreateOptions{})
		if got, refused, err := refusal(err); refused || err != nil {
			return got, err
		}
		if err := leases.Delete(ctx, lease.Name, metav1.DeleteOptions{}); err != nil {
			return Got{}, err
		}
		return Got{Succeeds, fmt.Sprintf("it has the lease %s", lease.Name)}, nil
	}
}
