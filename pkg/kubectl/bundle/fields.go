// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/schedulerapi"
)

// The functions of this file return objects with the fields that may be in a bundle. Each field is
// named: no part of an object is copied that may get more fields with a later Kubernetes, but lists
// of names and quantities, and what a policy says.

// document returns an object as a YAML document.
func document(object any) ([]byte, error) {
	text, err := yaml.Marshal(object)
	return append([]byte("---\n"), text...), err
}

func kind(version schema.GroupVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version.String(), Kind: kind}
}

// meta returns what identifies an object, its labels, and the annotations of these keys.
func meta(source *metav1.ObjectMeta, annotations ...string) metav1.ObjectMeta {
	kept := metav1.ObjectMeta{
		Namespace: source.Namespace, Name: source.Name, UID: source.UID, ResourceVersion: source.ResourceVersion,
		Generation: source.Generation, CreationTimestamp: source.CreationTimestamp,
		DeletionTimestamp: source.DeletionTimestamp,
		Labels:            source.Labels,
	}
	for _, key := range annotations {
		if value, ok := source.Annotations[key]; ok {
			metav1.SetMetaDataAnnotation(&kept, key, value)
		}
	}
	return kept
}

func node(source *corev1.Node) *corev1.Node {
	kept := &corev1.Node{
		TypeMeta: kind(corev1.SchemeGroupVersion, "Node"),
		ObjectMeta: meta(&source.ObjectMeta, deviceinfo.Annotation, deviceinfo.HoldersAnnotation,
			deviceinfo.RequiredPluginAnnotation, deviceinfo.UnhealthyAnnotation, deviceinfo.AttributesAnnotation,
			deviceinfo.UsageAnnotation, deviceinfo.DeviceTaintsAnnotation),
	}
	kept.Spec.Unschedulable = source.Spec.Unschedulable
	for _, taint := range source.Spec.Taints {
		kept.Spec.Taints = append(kept.Spec.Taints, corev1.Taint{
			Key: taint.Key, Value: taint.Value, Effect: taint.Effect, TimeAdded: taint.TimeAdded,
		})
	}
	kept.Status.Capacity, kept.Status.Allocatable = source.Status.Capacity, source.Status.Allocatable
	for _, c := range source.Status.Conditions {
		kept.Status.Conditions = append(kept.Status.Conditions, corev1.NodeCondition{
			Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message,
			LastHeartbeatTime: c.LastHeartbeatTime, LastTransitionTime: c.LastTransitionTime,
		})
	}
	info := source.Status.NodeInfo
	kept.Status.NodeInfo = corev1.NodeSystemInfo{
		KubeletVersion: info.KubeletVersion, ContainerRuntimeVersion: info.ContainerRuntimeVersion,
		KernelVersion: info.KernelVersion, OSImage: info.OSImage, OperatingSystem: info.OperatingSystem,
		Architecture: info.Architecture,
	}
	return kept
}

func pod(source *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{
		TypeMeta:   kind(corev1.SchemeGroupVersion, "Pod"),
		ObjectMeta: meta(&source.ObjectMeta, deviceinfo.Annotation),
		Spec: corev1.PodSpec{
			NodeName:       source.Spec.NodeName,
			InitContainers: containers(source.Spec.InitContainers),
			Containers:     containers(source.Spec.Containers),
		},
		Status: corev1.PodStatus{
			Phase: source.Status.Phase, Reason: source.Status.Reason, Message: source.Status.Message,
			NominatedNodeName: source.Status.NominatedNodeName, StartTime: source.Status.StartTime,
			InitContainerStatuses: statuses(source.Status.InitContainerStatuses),
			ContainerStatuses:     statuses(source.Status.ContainerStatuses),
		},
	}
	for _, c := range source.Status.Conditions {
		kept.Status.Conditions = append(kept.Status.Conditions, corev1.PodCondition{
			Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message,
			LastTransitionTime: c.LastTransitionTime,
		})
	}
	return kept
}

// containers keeps the restart policy of init containers too: by it, their devices are counted.
func containers(source []corev1.Container) []corev1.Container {
	var kept []corev1.Container
	for i := range source {
		c := &source[i]
		kept = append(kept, corev1.Container{
			Name: c.Name, Image: c.Image, RestartPolicy: c.RestartPolicy,
			Resources: corev1.ResourceRequirements{Limits: c.Resources.Limits, Requests: c.Resources.Requests},
		})
	}
	return kept
}

func statuses(source []corev1.ContainerStatus) []corev1.ContainerStatus {
	var kept []corev1.ContainerStatus
	for i := range source {
		s := &source[i]
		kept = append(kept, corev1.ContainerStatus{
			Name: s.Name, Image: s.Image, ImageID: s.ImageID, ContainerID: s.ContainerID,
			Ready: s.Ready, Started: s.Started, RestartCount: s.RestartCount,
			State: state(s.State), LastTerminationState: state(s.LastTerminationState),
		})
	}
	return kept
}

// state leaves out the message of a container that has ended: its program writes it.
func state(source corev1.ContainerState) (kept corev1.ContainerState) {
	if w := source.Waiting; w != nil {
		kept.Waiting = &corev1.ContainerStateWaiting{Reason: w.Reason, Message: w.Message}
	}
	if r := source.Running; r != nil {
		kept.Running = &corev1.ContainerStateRunning{StartedAt: r.StartedAt}
	}
	if t := source.Terminated; t != nil {
		kept.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: t.ExitCode, Signal: t.Signal, Reason: t.Reason, StartedAt: t.StartedAt, FinishedAt: t.FinishedAt,
		}
	}
	return kept
}

func event(source *corev1.Event) *corev1.Event {
	about := source.InvolvedObject
	kept := &corev1.Event{
		TypeMeta: kind(corev1.SchemeGroupVersion, "Event"),
		ObjectMeta: metav1.ObjectMeta{Namespace: source.Namespace, Name: source.Name,
			CreationTimestamp: source.CreationTimestamp},
		InvolvedObject: corev1.ObjectReference{
			Kind: about.Kind, Namespace: about.Namespace, Name: about.Name, UID: about.UID, FieldPath: about.FieldPath,
		},
		Type: source.Type, Reason: source.Reason, Message: source.Message, Action: source.Action,
		Source:              corev1.EventSource{Component: source.Source.Component, Host: source.Source.Host},
		ReportingController: source.ReportingController, ReportingInstance: source.ReportingInstance,
		FirstTimestamp: source.FirstTimestamp, LastTimestamp: source.LastTimestamp, Count: source.Count,
		EventTime: source.EventTime,
	}
	if s := source.Series; s != nil {
		kept.Series = &corev1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
	}
	return kept
}

func lease(source *coordinationv1.Lease) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   kind(coordinationv1.SchemeGroupVersion, "Lease"),
		ObjectMeta: meta(&source.ObjectMeta, schedulerapi.AddressAnnotation),
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: source.Spec.HolderIdentity, LeaseDurationSeconds: source.Spec.LeaseDurationSeconds,
			AcquireTime: source.Spec.AcquireTime, RenewTime: source.Spec.RenewTime,
			LeaseTransitions: source.Spec.LeaseTransitions,
		},
	}
}

// policy returns an admission policy or a binding of one. What it says is all of its spec:
// expressions, and to what they apply. Nil stands for any other object.
func policy(object runtime.Object) any {
	switch source := object.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		return &admissionv1.ValidatingAdmissionPolicy{
			TypeMeta:   kind(admissionv1.SchemeGroupVersion, "ValidatingAdmissionPolicy"),
			ObjectMeta: meta(&source.ObjectMeta), Spec: source.Spec, Status: source.Status,
		}
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		return &admissionv1.ValidatingAdmissionPolicyBinding{
			TypeMeta:   kind(admissionv1.SchemeGroupVersion, "ValidatingAdmissionPolicyBinding"),
			ObjectMeta: meta(&source.ObjectMeta), Spec: source.Spec,
		}
	case *admissionv1.MutatingAdmissionPolicy:
		return &admissionv1.MutatingAdmissionPolicy{
			TypeMeta:   kind(admissionv1.SchemeGroupVersion, "MutatingAdmissionPolicy"),
			ObjectMeta: meta(&source.ObjectMeta), Spec: source.Spec,
		}
	case *admissionv1.MutatingAdmissionPolicyBinding:
		return &admissionv1.MutatingAdmissionPolicyBinding{
			TypeMeta:   kind(admissionv1.SchemeGroupVersion, "MutatingAdmissionPolicyBinding"),
			ObjectMeta: meta(&source.ObjectMeta), Spec: source.Spec,
		}
	default:
		return nil
	}
}
