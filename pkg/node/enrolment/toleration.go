// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
)

// tolerationPolicy is the policy, and its binding, that keeps tenants from the annotations by which
// pods tolerate that kubecri is missing.
const tolerationPolicy = "kubedevice-missing-plugins"

// tolerationFact is about the annotation with which the runtime creates a pod's containers although
// a plugin is missing that they require. A key that the policy does not cover, or of which that is
// not known, blocks an enrolment in ModeNRI if the runtime requires kubecri for all containers: any
// tenant could start containers past the device firewall while kubecri is away.
//
// Otherwise the key opens nothing. Where only containers with devices require kubecri, any other
// container is created while it is away, with or without the annotation, and a pod with devices
// that tolerates it loses its own. With ModeCRI the kubelet has no other way than the proxy.
// Such a key is a notice, so that it is covered before the runtime is changed to require kubecri.
func (e *Enrolment) tolerationFact(ctx context.Context, s *nodeState, settings nri.Settings) Fact {
	found := fact("toleration", "containers of pods with the annotation %[1]s, %[1]s/pod or %[1]s/container.NAME "+
		"require no plugin, by %[2]s", settings.Tolerated, settings.File)
	client := s.client
	if e.options.Cluster != nil {
		client = e.options.Cluster
	}
	gap, err := tolerationGap(ctx, client, settings.Tolerated)
	advice := fmt.Sprintf("so that no tenant writes it, the policy %s must have %s in its variable keys, and its "+
		"binding the action Deny (Helm: policies.missingPlugins.annotation); or remove the key from the runtime's "+
		"configuration", tolerationPolicy, settings.Tolerated)
	switch {
	case err != nil:
		found.Finding += fmt.Sprintf("; whether tenants may write it is unknown: %v", err)
		advice += "; nodes read it by the role kubedevice-missing-plugins-reader of deploy/rbac"
	case gap == "":
		found.Finding += fmt.Sprintf("; the policy %s keeps tenants from it", tolerationPolicy)
		return found
	default:
		found.Finding += ", and any tenant may write it: " + gap
	}
	switch {
	case e.options.Mode == ModeNRI && slices.Contains(settings.Required, deviceinfo.NRIPlugin):
		return found.blocks(advice)
	case e.options.Mode == ModeNRI:
		return found.notice("before the runtime is changed to require " + deviceinfo.NRIPlugin +
			" for all containers: " + advice)
	}
	return found.notice(advice)
}

// celNames matches a CEL list of names and nothing else, as the policy is shipped; celName matches
// one of them.
var (
	celNames = regexp.MustCompile(`^\s*\[\s*(` + quotedName + `\s*(,\s*` + quotedName + `\s*)*)?\]\s*$`)
	celName  = regexp.MustCompile(quotedName)
)

const quotedName = `'([^'"\\\n]*)'`

// tolerationGap returns why the policy in the cluster does not keep tenants from writing an
// annotation with this key, in any of its forms, or "" if it does. Whether the rest of the policy
// is as it was shipped, the scheduler compares.
func tolerationGap(ctx context.Context, client kubernetes.Interface, key string) (gap string, err error) {
	admission := client.AdmissionregistrationV1()
	policy, err := admission.ValidatingAdmissionPolicies().Get(ctx, tolerationPolicy, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "the policy " + tolerationPolicy + " is not installed", nil
	} else if err != nil {
		return "", err
	}
	binding, err := admission.ValidatingAdmissionPolicyBindings().Get(ctx, tolerationPolicy, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "the policy " + tolerationPolicy + " has no binding of its name", nil
	} else if err != nil {
		return "", err
	}
	keys := ""
	for _, variable := range policy.Spec.Variables {
		if variable.Name == "keys" {
			keys = variable.Expression
		}
	}
	switch {
	case binding.Spec.PolicyName != tolerationPolicy:
		return fmt.Sprintf("the binding %s is for the policy %q", tolerationPolicy, binding.Spec.PolicyName), nil
	case !slices.Contains(binding.Spec.ValidationActions, admissionv1.Deny):
		return fmt.Sprintf("the binding of the policy %s has the actions %v", tolerationPolicy,
			binding.Spec.ValidationActions), nil
	case !celNames.MatchString(keys):
		return fmt.Sprintf("the variable keys of the policy %s is no list of names: %s", tolerationPolicy, keys), nil
	case !covers(celName.FindAllStringSubmatch(keys, -1), key):
		return fmt.Sprintf("the policy %s has the keys %s", tolerationPolicy, keys), nil
	}
	return "", nil
}

// covers reports whether the policy refuses all forms of a key, if names are its keys: it refuses
// them, and what follows them after a slash.
func covers(names [][]string, key string) bool {
	return slices.ContainsFunc(names, func(name []string) bool {
		return name[1] == key || strings.HasPrefix(key, name[1]+"/")
	})
}
