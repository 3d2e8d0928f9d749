// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/kubedevice/kubedevice/deploy"
	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/scheduler/frameworkplugin"
	"github.com/kubedevice/kubedevice/pkg/scheduler/policies"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
	"github.com/kubedevice/kubedevice/pkg/seal"
	"github.com/kubedevice/kubedevice/test/kube"
)

// The second scheduler's namespace, and the name of all that it has there.
const (
	secondNamespace = "kubedevice-system"
	secondName      = "kubedevice-scheduler"
)

// second is what deploy/second-scheduler makes of an API server.
type second struct {
	*cluster
	deployment    appsv1.Deployment
	configuration string // of the scheduler
}

// installSecond applies deploy/second-scheduler, as kubectl apply -k does, until the test ends.
func installSecond(c *cluster) *second {
	c.Helper()
	manifests, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(),
		"../../../deploy/second-scheduler")
	if err != nil {
		c.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(c.Discovery())
	if err != nil {
		c.Fatal(err)
	}
	mapper, client := restmapper.NewDiscoveryRESTMapper(groups), dynamic.NewForConfigOrDie(c.Config)
	s := &second{cluster: c}
	for _, manifest := range manifests.Resources() {
		content, err := manifest.Map()
		if err != nil {
			c.Fatal(err)
		}
		object := &unstructured.Unstructured{Object: content}
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			c.Fatal(err)
		}
		api := client.Resource(mapping.Resource).Namespace(object.GetNamespace())
		_, err = api.Get(c.Context(), object.GetName(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			c.Fatal(err)
		}
		existed := err == nil
		if _, err := api.Apply(c.Context(), object.GetName(), object,
			metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
			c.Fatalf("apply %s %s: %v", kind.Kind, object.GetName(), err)
		}
		switch kind.Kind {
		case "Deployment":
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, &s.deployment); err != nil {
				c.Fatal(err)
			}
		case "ConfigMap":
			s.configuration, _, _ = unstructured.NestedString(content, "data", "scheduler.yaml")
		}
		if existed || kind.Kind == "Namespace" || strings.HasPrefix(kind.Kind, "ValidatingAdmissionPolicy") {
			continue // no controller would remove the namespace; the policies go below
		}
		c.Cleanup(func() {
			if err := api.Delete(context.Background(), object.GetName(), atOnce); err != nil { // the test's has ended
				c.Error(err)
			}
		})
	}
	names, err := deploy.PolicyNames()
	if err != nil {
		c.Fatal(err)
	}
	ctx := context.Background() // the test's has ended when they go
	inForce := c.policyInForce(ctx)
	c.Cleanup(func() { c.removePolicies(ctx, names, inForce) })
	return s
}

// identity is as whom the Deployment's pods reach the API server: with a token of their service
// account. Their rights are in force.
func (s *second) identity() *kube.Client {
	s.Helper()
	token, err := s.CoreV1().ServiceAccounts(secondNamespace).CreateToken(s.Context(),
		s.deployment.Spec.Template.Spec.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.Fatal(err)
	}
	config := rest.AnonymousClientConfig(s.Config)
	config.BearerToken = token.Status.Token
	client, err := kube.NewClient(config)
	if err != nil {
		s.Fatal(err)
	}
	if err := client.AwaitRights(s.Context(), // one of each binding
		authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "eviction"},
		authorizationv1.ResourceAttributes{Verb: "create", Resource: "pods", Subresource: "binding"},
		authorizationv1.ResourceAttributes{Verb: "patch", Resource: "persistentvolumes"},
		authorizationv1.ResourceAttributes{
			Namespace: metav1.NamespaceSystem, Verb: "get", Resource: "configmaps",
			Name: "extension-apiserver-authentication",
		},
		authorizationv1.ResourceAttributes{
			Namespace: secondNamespace, Verb: "update", Group: coordinationv1.GroupName, Resource: "leases",
			Name: secondName,
		},
		authorizationv1.ResourceAttributes{
			Namespace: schedulerapi.Namespace, Verb: "update", Group: coordinationv1.GroupName, Resource: "leases",
		},
	); err != nil {
		s.Fatal(err)
	}
	return client
}

// start starts the scheduler with what the manifests give it: configuration, arguments, identity. A
// seal key stands for that of the Secret.
func (s *second) start(keys *keyFile) *process {
	s.Helper()
	arguments := []string{"--devschedpath=" + s.TempDir() + "/none"}
	for _, argument := range s.deployment.Spec.Template.Spec.Containers[0].Args {
		flag, _, _ := strings.Cut(argument, "=")
		switch flag {
		case "--config", "--secure-port", "--devices-secure-port": // the test's own
		case "--device-seal-key":
			arguments = append(arguments, flag+"="+keys.path)
		default:
			arguments = append(arguments, argument)
		}
	}
	return startConfigured(s.T, asOurs, s.identity().Config, arguments, s.configuration)
}

// Two schedulers run: upstream's for most pods, ours for those with devices. Ours has no more
// rights than its manifests give it.
func TestASecondSchedulerSchedulesDevicePodsWithTheRightsOfItsManifests(t *testing.T) {
	c := newCluster(t)
	s := installSecond(c)
	c.nameSchedulers("")
	c.node("n1", 2)
	upstream, keys := startUpstream(t), newKeyFile(t, 1)
	ours := s.start(keys)

	device, plain := c.schedule(newPod("device", 1)), c.schedule(newPod("plain", 0))
	if got := device.Spec.SchedulerName; got != frameworkplugin.SchedulerName {
		t.Errorf("the device pod has the scheduler %s", got)
	}
	c.check()
	if device.Annotations[seal.Annotation] == "" {
		t.Error("the device pod has no seal")
	}
	if got := plain.Spec.SchedulerName; got != corev1.DefaultSchedulerName {
		t.Errorf("the plain pod has the scheduler %s", got)
	}
	lease, err := c.CoordinationV1().Leases(secondNamespace).Get(t.Context(), secondName, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		t.Errorf("its lease is %v, %v", lease, err)
	}

	// It leaves others' pods alone: one waits, while one of its own that came later is bound.
	upstream.kill()
	waiting := c.create(newPod("waiting", 0))
	c.schedule(newPod("second-device", 1))
	waiting, err = c.CoreV1().Pods(waiting.Namespace).Get(t.Context(), waiting.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if waiting.Spec.NodeName != "" || len(waiting.Status.Conditions) > 0 {
		t.Errorf("a pod of another scheduler is on node %q, with the conditions %v", waiting.Spec.NodeName,
			waiting.Status.Conditions)
	}

	if report, err := policies.Check(t.Context(), s.identity()); err != nil || len(report.Problems) > 0 {
		t.Errorf("the policies, as the scheduler sees them, have the problems %+v, %v", report.Problems, err)
	}
	ours.terminate()
	log, err := os.ReadFile(ours.log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(strings.ToLower(line), "forbidden") {
			t.Errorf("the API server has refused it something: %s", line)
		}
	}
}

// Another program with a scheduler's rights binds no pod to devices, and has no seal key.
func TestAnotherSchedulerWithTheSameRightsCannotAllocate(t *testing.T) {
	c := newCluster(t)
	s := installSecond(c)
	c.node("n1", 1)
	const user = "system:serviceaccount:tenant:" + secondName
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "another-scheduler"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kube-scheduler"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
	}
	if _, err := c.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.RbacV1().ClusterRoleBindings().Delete(context.Background(), binding.Name, atOnce); err != nil {
			t.Error(err)
		}
	})
	bind := func(name string, as *kube.Client) error {
		pod := c.create(newPod(name, 1))
		return as.CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID, Annotations: map[string]string{
				deviceinfo.Annotation: allocated(pod.Name, "n1", 0),
			}},
			Target: corev1.ObjectReference{Kind: "Node", Name: "n1"},
		}, metav1.CreateOptions{})
	}
	if err := bind("bound", s.identity()); err != nil {
		t.Errorf("the second scheduler cannot bind with an allocation: %v", err)
	}
	another, err := c.As(user)
	if err != nil {
		t.Fatal(err)
	}
	if err := another.AwaitRights(t.Context(), authorizationv1.ResourceAttributes{
		Verb: "create", Resource: "pods", Subresource: "binding",
	}); err != nil {
		t.Fatal(err)
	}
	if err := bind("refused", another); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "only the device scheduler may send") {
		t.Errorf("another scheduler binds with an allocation: %v", err)
	}
}

// Both schedulers count what the other one has bound. One that was too late loses at the kubelet,
// which fails the pod: its devices are free at once, while the pod is still there.
func TestTwoSchedulersShareTheCPUOfANode(t *testing.T) {
	c := newCluster(t)
	s := installSecond(c)
	c.nameSchedulers("")
	c.node("n1", 1) // 64 CPUs
	startUpstream(t)
	s.start(newKeyFile(t, 1))

	with := func(pod *corev1.Pod, cpu string) *corev1.Pod {
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		return pod
	}
	large := c.schedule(with(newPod("large", 0), "60"))
	device := c.create(with(newPod("device", 1), "8"))
	device = c.await(device, "to find no CPU", kube.Unschedulable)
	c.delete(large)
	device = c.await(device, "to be bound", kube.Scheduled)

	device.Status.Phase, device.Status.Reason = corev1.PodFailed, "OutOfcpu"
	device, err := c.CoreV1().Pods(device.Namespace).UpdateStatus(t.Context(), device, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if again := c.schedule(with(newPod("again", 1), "8")); devices(again) != devices(device) {
		t.Errorf("the pod that takes its place was allocated %q, want %q", devices(again), devices(device))
	}
}

// The pods of the Deployment are such as the namespace's Pod Security admits, and have nothing to
// write to and no rights on their node.
func TestPodsOfTheSecondSchedulerAreRestricted(t *testing.T) {
	c := newCluster(t)
	s := installSecond(c)
	template := s.deployment.Spec.Template
	pods := c.CoreV1().Pods(secondNamespace)
	create := func(spec corev1.PodSpec) error {
		_, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "scheduler", Labels: template.Labels}, Spec: spec,
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	if err := create(template.Spec); err != nil {
		t.Errorf("its pods are refused: %v", err)
	}
	privileged := template.Spec.DeepCopy()
	privileged.SecurityContext = nil
	if err := create(*privileged); !apierrors.IsForbidden(err) {
		t.Errorf("a pod that may run as root is admitted to its namespace: %v", err)
	}
	if readOnly := template.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem; readOnly == nil || !*readOnly {
		t.Error("its root file system can be written")
	}
}
