// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"context"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"github.com/kubedevice/kubedevice/test/await"
	"github.com/kubedevice/kubedevice/test/kube"
)

var (
	dryCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	dryPatch  = metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}
	dryDelete = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
)

// call is one call of the API. What writes is a dry run, which the API server authorises and admits
// like any other call.
type call func(ctx context.Context, s *Stage, client *kube.Client) error

// rights are attempts to reach around the defences, where nothing but the API server's own
// authorisation stands. Without it, the attacker is an administrator.
func rights() []*Attempt {
	var attempts []*Attempt
	for _, right := range []struct {
		id, what string
		call     call
	}{
		{"policy-delete", "deletes an admission policy's binding",
			func(ctx context.Context, _ *Stage, c *kube.Client) error {
				return c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx,
					"kubedevice-pod-allocations", dryDelete)
			}},
		{"policy-weaken", "makes a binding that audits and does not deny",
			func(ctx context.Context, _ *Stage, c *kube.Client) error {
				_, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(ctx,
					&admissionv1.ValidatingAdmissionPolicyBinding{
						ObjectMeta: metav1.ObjectMeta{Name: "weaker"},
						Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
							PolicyName:        "kubedevice-pod-allocations",
							ValidationActions: []admissionv1.ValidationAction{admissionv1.Audit},
						},
					}, dryCreate)
				return err
			}},
		{"webhook", "registers a webhook that changes other tenants' pods",
			func(ctx context.Context, _ *Stage, c *kube.Client) error {
				return c.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, "any", dryDelete)
			}},
		{"trust-bundle", "publishes certificates of its own in a ClusterTrustBundle",
			func(ctx context.Context, _ *Stage, c *kube.Client) error {
				return c.CoreV1().RESTClient().Delete().AbsPath("/apis/certificates.k8s.io/v1/clustertrustbundles/any").
					Param("dryRun", "All").Do(ctx).Error()
			}},
		{"system-configmap", "writes a ConfigMap of the control plane",
			func(ctx context.Context, _ *Stage, c *kube.Client) error {
				_, err := c.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx,
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, dryCreate)
				return err
			}},
		{"system-secret", "reads the control plane's Secrets, where a sealing key may be",
			func(ctx context.Context, _ *Stage, c *kube.Client) error {
				_, err := c.CoreV1().Secrets(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
				return err
			}},
		{"leader-lease", "takes the scheduler's lease",
			func(ctx context.Context, _ *Stage, c *kube.Client) error {
				_, err := c.CoordinationV1().Leases(metav1.NamespaceSystem).Create(ctx,
					&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "any"}}, dryCreate)
				return err
			}},
		{"impersonate", "acts as the scheduler",
			func(ctx context.Context, s *Stage, c *kube.Client) error {
				scheduler, err := c.As("system:kube-scheduler")
				if err != nil {
					return err
				}
				_, err = scheduler.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{})
				return err
			}},
		{"scheduler-token", "requests a token of a service account of the control plane",
			func(ctx context.Context, _ *Stage, c *kube.Client) error {
				return c.CoreV1().RESTClient().Post().Namespace(metav1.NamespaceSystem).Resource("serviceaccounts").
					Name("default").SubResource("token").Body([]byte(`{"kind":"TokenRequest",`+
					`"apiVersion":"authentication.k8s.io/v1","spec":{}}`)).
					SetHeader("Content-Type", "application/json").Do(ctx).Error()
			}},
		{"tenant-binding", "binds its pod itself",
			func(ctx context.Context, s *Stage, c *kube.Client) error {
				pod, err := s.admin.CreatePod(ctx, s.unscheduledPod())
				if err != nil {
					return err
				}
				return s.bind(ctx, c, pod, nil)
			}},
		{"tenant-pod-status", "writes its pod's status",
			func(ctx context.Context, s *Stage, c *kube.Client) error {
				pod, err := s.admin.CreatePod(ctx, s.unscheduledPod())
				if err != nil {
					return err
				}
				_, err = c.CoreV1().Pods(s.namespace).Patch(ctx, pod.Name, apitypes.MergePatchType,
					[]byte(`{"status":{"phase":"Failed"}}`), dryPatch, "status")
				return err
			}},
		{"tenant-node", "writes a node's capacity",
			func(ctx context.Context, s *Stage, c *kube.Client) error {
				_, err := c.CoreV1().Nodes().Patch(ctx, s.node(forged).Name, apitypes.MergePatchType,
					[]byte(`{"status":{"capacity":{"nvidia.com/gpu":"0"}}}`), dryPatch, "status")
				return err
			}},
		{"tenant-device-taint", "takes the taints off a node's devices, or cordons them",
			func(ctx context.Context, s *Stage, c *kube.Client) error {
				_, err := c.CoreV1().Nodes().Patch(ctx, s.node(forged).Name, apitypes.MergePatchType,
					annotateTaints(""), dryPatch)
				return err
			}},
		{"tenant-kubelet", "calls the kubelet's own API through the API server",
			func(ctx context.Context, s *Stage, c *kube.Client) error {
				return c.CoreV1().RESTClient().Get().Resource("nodes").Name(s.node(forged).Name).SubResource("proxy").
					Suffix("pods").Do(ctx).Error()
			}},
		{"other-namespace", "reads other tenants' pods, and which devices they hold",
			func(ctx context.Context, _ *Stage, c *kube.Client) error {
				_, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
				return err
			}},
	} {
		attempts = append(attempts, &Attempt{
			ID: right.id, Who: Tenant, What: right.what, Defence: Rights,
			Want: everywhere(RefusedByAPIServer, "forbidden"),
			Try:  asTenant(right.call, false),
			Off:  Off{How: "it is bound to the role cluster-admin", Try: asTenant(right.call, true)},
		})
	}
	attempts[0].Sample = true
	return append(attempts, kubeletRights()...)
}

// asTenant makes a call as a tenant, who may be an administrator at the same time.
func asTenant(call call, administrator bool) Try {
	return func(ctx context.Context, s *Stage) (Got, error) {
		tenant, err := s.tenant(ctx)
		if err != nil {
			return Got{}, err
		}
		if administrator {
			if err := s.bindEverywhere(ctx, "cluster-admin", s.subjects("tenant")); err != nil {
				return Got{}, err
			}
			if err := tenant.AwaitRights(ctx, anyRight); err != nil {
				return Got{}, err
			}
		}
		return called(call(ctx, s, tenant))
	}
}

// called returns what came of a call. One of an object that does not exist was permitted.
func called(err error) (Got, error) {
	if err == nil || apierrors.IsNotFound(err) {
		return Got{Succeeds, "the API server permits it"}, nil
	}
	got, _, err := refusal(err)
	return got, err
}

// kubeletRights are attempts with the credentials of a node's kubelet against others' pods.
func kubeletRights() []*Attempt {
	var attempts []*Attempt
	for _, right := range []struct {
		id, what, refusal string
		call              func(ctx context.Context, kubelet *kube.Client, pod *corev1.Pod) error
	}{
		{"kubelet-delete-pod", "deletes a pod of another node", "can only delete pods",
			func(ctx context.Context, kubelet *kube.Client, pod *corev1.Pod) error {
				return kubelet.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, dryDelete)
			}},
		{"kubelet-pod-status", "writes the status of a pod of another node", "can only update pod status",
			func(ctx context.Context, kubelet *kube.Client, pod *corev1.Pod) error {
				_, err := kubelet.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, apitypes.MergePatchType,
					[]byte(`{"status":{"message":"x"}}`), dryPatch, "status")
				return err
			}},
		{"kubelet-secret", "reads a Secret of a pod of another node", "no relationship found",
			func(ctx context.Context, kubelet *kube.Client, pod *corev1.Pod) error {
				_, err := kubelet.CoreV1().Secrets(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
				return err
			}},
	} {
		on := func(node func(s *Stage) string) Try {
			return func(ctx context.Context, s *Stage) (Got, error) {
				pod, kubelet, err := s.podOn(ctx, node(s))
				if err != nil {
					return Got{}, err
				}
				// The API server notices only after some time which nodes a Secret belongs to.
				var got Got
				err = await.Until(ctx, "node "+node(s)+" to have the right", func(ctx context.Context) (bool, error) {
					got, err = called(right.call(ctx, kubelet, pod))
					return err != nil || node(s) != ghost || got.Outcome == Succeeds, err
				})
				return got, err
			}
		}
		attempts = append(attempts, &Attempt{
			ID: right.id, Who: Kubelet, What: right.what, Defence: Rights,
			Want: everywhere(RefusedByAPIServer, right.refusal),
			Try:  on(func(s *Stage) string { return s.node(forged).Name }),
			Off:  Off{How: "it is a pod of its own node", Try: on(func(*Stage) string { return ghost })},
		})
	}
	return attempts
}

// podOn creates a pod on a node, with a Secret of the same name, and returns the client of the
// ghost's kubelet.
func (s *Stage) podOn(ctx context.Context, node string) (*corev1.Pod, *kube.Client, error) {
	if err := s.makeNamespace(ctx); err != nil {
		return nil, nil, err
	}
	if err := s.makeGhost(ctx); err != nil {
		return nil, nil, err
	}
	const name = "victim"
	_, err := s.admin.CoreV1().Secrets(s.namespace).Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return nil, nil, err
	}
	pod := s.pod(name, 0)
	pod.Spec.NodeName = node
	pod.Spec.Volumes = []corev1.Volume{{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: name}}}}
	if pod, err = s.admin.CreatePod(ctx, pod); err != nil {
		return nil, nil, err
	}
	kubelet, err := s.cluster.KubeletClient(ghost)
	return pod, kubelet, err
}

// makeGhost makes the node that has a kubelet's credentials and no machine, unless it is there.
func (s *Stage) makeGhost(ctx context.Context) error {
	_, err := s.admin.CoreV1().Nodes().Create(ctx,
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ghost, Labels: map[string]string{
			corev1.LabelHostname: ghost}}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// anyRight is one that only administrators have.
var anyRight = authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Resource: "*"}
