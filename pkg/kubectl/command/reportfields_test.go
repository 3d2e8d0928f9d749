// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package command

import (
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
)

// plant writes a text that names the field into each string of an object, into keys of maps and
// bytes as well, and something into everything else.
func plant(v reflect.Value, path string) {
	switch at := v.Addr().Interface().(type) {
	case *metav1.Time:
		at.Time = now
		return
	case *metav1.MicroTime:
		at.Time = now
		return
	case *apiresource.Quantity:
		*at = *apiresource.NewQuantity(1, apiresource.DecimalSI)
		return
	case *[]byte:
		*at = []byte(path)
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(path)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		plant(v.Elem(), path)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		plant(v.Index(0), path)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		plant(key, path+".KEY")
		if v.Type() == reflect.TypeFor[corev1.ResourceList]() {
			key.SetString("vendor.example/" + key.String())
		}
		plant(value, path)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				under := path + "." + field.Name
				if field.Anonymous {
					under = path
				}
				plant(v.Field(i), under)
			}
		}
	default:
		panic("nothing to plant into " + path + ", which is a " + v.Type().String())
	}
}

// planting returns an object of a type with something in each field.
func planting[T any](name string) *T {
	object := new(T)
	plant(reflect.ValueOf(object).Elem(), "planted."+name)
	return object
}

var planted = regexp.MustCompile(`planted((\.[a-z]+)(\.[A-Z][A-Za-z0-9]*)+)`)

// Each field of each object that is read has a text of its own. Those that are in the report are
// the ones that may be.
func TestAReportHasNoFieldsButThoseThatMayBeInIt(t *testing.T) {
	node := planting[corev1.Node]("node")
	node.Annotations[deviceinfo.Annotation] = "{}"
	pod := planting[corev1.Pod]("pod")
	pod.Annotations[deviceinfo.Annotation] = `{"runningcontainer":{"x":{"requests":{"gpu/a/cards":1}}}}`
	scheduler := planting[corev1.Pod]("scheduler")
	scheduler.Namespace, scheduler.Spec.Containers[0].Name = "kube-system", "kube-scheduler"
	scheduler.Status.ContainerStatuses[0].Name = "kube-scheduler"
	for _, list := range [][]corev1.Container{scheduler.Spec.InitContainers, scheduler.Spec.Containers} {
		list[0].Resources = corev1.ResourceRequirements{} // it is no device pod
	}
	event := planting[corev1.Event]("event")
	event.Source.Component = "kubecri"
	lease := planting[coordinationv1.Lease]("lease")
	lease.Namespace, lease.Name = "kube-system", "a-scheduler"
	policy := planting[admissionv1.ValidatingAdmissionPolicy]("policy")
	policy.Name = "kubedevice-policy"
	binding := planting[admissionv1.ValidatingAdmissionPolicyBinding]("binding")
	binding.Name = "kubedevice-binding"
	secret := planting[corev1.Secret]("secret")
	values := planting[corev1.ConfigMap]("configmap")

	f := withControlPlane(t, node, pod, scheduler, event, lease, policy, binding, secret, values)
	files, _ := f.writeReport(t, "")
	got := map[string]bool{}
	for _, text := range files {
		for _, match := range planted.FindAllStringSubmatch(text, -1) {
			got[match[1]] = true
		}
	}
	// All of what a policy says may be in it.
	maps.DeleteFunc(got, func(field string, _ bool) bool {
		return strings.HasPrefix(field, ".policy.Spec.") || strings.HasPrefix(field, ".binding.Spec.")
	})
	if diff := cmp.Diff(strings.Fields(mayBeIn), slices.Sorted(maps.Keys(got))); diff != "" {
		t.Errorf("-may be in the report +are in it:\n%s", diff)
	}
	for _, action := range f.client.Actions() {
		if resource := action.GetResource().Resource; resource == "secrets" || resource == "configmaps" ||
			!slices.Contains([]string{"get", "list"}, action.GetVerb()) {
			t.Errorf("it does %s %s", action.GetVerb(), resource)
		}
	}
}

// mayBeIn are the fields that may be in a report, by the object that they are planted in.
const mayBeIn = `
.binding.Labels .binding.Labels.KEY .binding.Namespace .binding.ResourceVersion .binding.UID

.event.Action .event.InvolvedObject.FieldPath .event.InvolvedObject.Kind .event.InvolvedObject.Name
.event.InvolvedObject.Namespace .event.InvolvedObject.UID .event.Message .event.Name .event.Namespace .event.Reason
.event.ReportingController .event.ReportingInstance .event.Source.Host .event.Type

.lease.Labels .lease.Labels.KEY .lease.ResourceVersion .lease.Spec.HolderIdentity .lease.UID

.node.Labels .node.Labels.KEY .node.Name .node.Namespace .node.ResourceVersion .node.Spec.Taints.Effect
.node.Spec.Taints.Key .node.Spec.Taints.Value .node.Status.Allocatable.KEY .node.Status.Capacity.KEY
.node.Status.Conditions.Message .node.Status.Conditions.Reason .node.Status.Conditions.Status
.node.Status.Conditions.Type .node.Status.NodeInfo.Architecture .node.Status.NodeInfo.ContainerRuntimeVersion
.node.Status.NodeInfo.KernelVersion .node.Status.NodeInfo.KubeletVersion .node.Status.NodeInfo.OSImage
.node.Status.NodeInfo.OperatingSystem .node.UID

.pod.Labels .pod.Labels.KEY .pod.Name .pod.Namespace .pod.ResourceVersion .pod.Spec.Containers.Image
.pod.Spec.Containers.Name .pod.Spec.Containers.Resources.Limits.KEY .pod.Spec.Containers.Resources.Requests.KEY
.pod.Spec.Containers.RestartPolicy .pod.Spec.InitContainers.Image .pod.Spec.InitContainers.Name
.pod.Spec.InitContainers.Resources.Limits.KEY .pod.Spec.InitContainers.Resources.Requests.KEY
.pod.Spec.InitContainers.RestartPolicy .pod.Spec.NodeName .pod.Status.Conditions.Message .pod.Status.Conditions.Reason
.pod.Status.Conditions.Status .pod.Status.Conditions.Type .pod.Status.ContainerStatuses.ContainerID
.pod.Status.ContainerStatuses.Image .pod.Status.ContainerStatuses.ImageID
.pod.Status.ContainerStatuses.LastTerminationState.Terminated.Reason
.pod.Status.ContainerStatuses.LastTerminationState.Waiting.Message
.pod.Status.ContainerStatuses.LastTerminationState.Waiting.Reason .pod.Status.ContainerStatuses.Name
.pod.Status.ContainerStatuses.State.Terminated.Reason .pod.Status.ContainerStatuses.State.Waiting.Message
.pod.Status.ContainerStatuses.State.Waiting.Reason .pod.Status.InitContainerStatuses.ContainerID
.pod.Status.InitContainerStatuses.Image .pod.Status.InitContainerStatuses.ImageID
.pod.Status.InitContainerStatuses.LastTerminationState.Terminated.Reason
.pod.Status.InitContainerStatuses.LastTerminationState.Waiting.Message
.pod.Status.InitContainerStatuses.LastTerminationState.Waiting.Reason .pod.Status.InitContainerStatuses.Name
.pod.Status.InitContainerStatuses.State.Terminated.Reason .pod.Status.InitContainerStatuses.State.Waiting.Message
.pod.Status.InitContainerStatuses.State.Waiting.Reason .pod.Status.Message .pod.Status.NominatedNodeName
.pod.Status.Phase .pod.Status.Reason .pod.UID

.policy.Labels .policy.Labels.KEY .policy.Namespace .policy.ResourceVersion .policy.Status.Conditions.Message
.policy.Status.Conditions.Reason .policy.Status.Conditions.Status .policy.Status.Conditions.Type
.policy.Status.TypeChecking.ExpressionWarnings.FieldRef .policy.Status.TypeChecking.ExpressionWarnings.Warning
.policy.UID

.scheduler.Name .scheduler.Spec.Containers.Image .scheduler.Spec.NodeName .scheduler.Status.ContainerStatuses.ImageID
`
