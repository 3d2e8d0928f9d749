// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/deploy"
	"github.com/kubedevice/kubedevice/pkg/deviceinfo"
	"github.com/kubedevice/kubedevice/pkg/node/nri"
)

// shippedPolicy returns the policy kubedevice-missing-plugins of deploy/policies and its binding.
func shippedPolicy(t *testing.T) (
	*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding,
) {
	t.Helper()
	text, err := fs.ReadFile(deploy.Policies, "policies/"+tolerationPolicy+".yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(string(text), "\n---\n")
	policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	if err := errors.Join(yaml.Unmarshal([]byte(first), policy), yaml.Unmarshal([]byte(second), binding)); err != nil {
		t.Fatal(err)
	}
	return policy, binding
}

func TestANodeWhoseContainersTenantsMayExceptFromKubecriIsRefused(t *testing.T) {
	const own = "tolerate.example.com"
	type (
		policy  = admissionv1.ValidatingAdmissionPolicy
		binding = admissionv1.ValidatingAdmissionPolicyBinding
	)
	keys := func(expression string) func(*policy, *binding) {
		return func(p *policy, _ *binding) {
			for i := range p.Spec.Variables {
				if p.Spec.Variables[i].Name == "keys" {
					p.Spec.Variables[i].Expression = expression
				}
			}
		}
	}
	all := []string{deviceinfo.NRIPlugin}
	for name, test := range map[string]struct {
		mode     Mode
		key      string
		required []string
		change   func(*policy, *binding)
		risk     Risk
		finding  string
	}{
		"the key that the shipped policy covers": {
			mode: ModeNRI, key: deviceinfo.ToleratedPluginsAnnotation, required: all, risk: None,
			finding: "the policy kubedevice-missing-plugins keeps tenants from it",
		},
		"a key of the administrator's own": {
			mode: ModeNRI, key: own, required: all, risk: Blocks,
			finding: "any tenant may write it: the policy kubedevice-missing-plugins has the keys " +
				"['tolerate-missing-plugins.noderesource.dev']",
		},
		"one that the administrator has added to the policy": {
			mode: ModeNRI, key: own, required: all, change: keys("['a', '" + own + "']"), risk: None,
		},
		"one of which a key of the policy is a prefix": {
			mode: ModeNRI, key: own, required: all, change: keys("['tolerate.example']"), risk: Blocks,
		},
		"one with a slash": {
			mode: ModeNRI, key: "example.com/tolerate", required: all, change: keys("['example.com']"), risk: None,
		},
		"keys that are no list of names": {
			mode: ModeNRI, key: own, required: all, change: keys("params.keys"), risk: Blocks, finding: "params.keys",
		},
		"a list that is filtered": {
			mode: ModeNRI, key: own, required: all, change: keys("['" + own + "'].filter(k, false)"), risk: Blocks,
		},
		"a key in a comment": {
			mode: ModeNRI, key: own, required: all, change: keys("['a'] // not '" + own + "'"), risk: Blocks,
		},
		"no keys": {mode: ModeNRI, key: own, required: all, change: keys("[]"), risk: Blocks},
		"a policy that is not installed": {
			mode: ModeNRI, key: own, required: all, change: func(p *policy, _ *binding) { p.Name = "other" },
			risk: Blocks, finding: "the policy kubedevice-missing-plugins is not installed",
		},
		"a policy that is not bound": {
			mode: ModeNRI, key: deviceinfo.ToleratedPluginsAnnotation, required: all, risk: Blocks,
			change: func(_ *policy, b *binding) { b.Name = "other" }, finding: "has no binding",
		},
		"a binding for another policy": {
			mode: ModeNRI, key: deviceinfo.ToleratedPluginsAnnotation, required: all, risk: Blocks,
			change: func(_ *policy, b *binding) { b.Spec.PolicyName = "other" }, finding: `for the policy "other"`,
		},
		"a policy that only reports": {
			mode: ModeNRI, key: deviceinfo.ToleratedPluginsAnnotation, required: all, risk: Blocks,
			change: func(_ *policy, b *binding) {
				b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}
			},
			finding: "the actions [Warn Audit]",
		},
		"a runtime that does not require kubecri for all containers": {
			mode: ModeNRI, key: own, risk: Notice, finding: "any tenant may write it",
		},
		"a proxy, without which no container is created": {
			mode: ModeCRI, key: own, required: all, risk: Notice, finding: "any tenant may write it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newKubelet(t, kubeadm)
			m.options.Mode = test.mode
			m.validator = nri.Settings{Enabled: true, File: "/c", Required: test.required, Tolerated: test.key}
			p, b := shippedPolicy(t)
			if test.change != nil {
				test.change(p, b)
			}
			m.addToAPI(p, b)
			m.expectToleration(test.risk, test.finding, test.key+", "+test.key+"/pod or "+test.key+"/container.NAME")
		})
	}
}

// An administrator may see what the kubelet's identity may not.
func TestExceptionsOfTenantsAreUnknownWithoutTheRightToReadPolicies(t *testing.T) {
	m := newKubelet(t, kubeadm)
	m.options.Mode = ModeNRI
	m.validator = nri.Settings{
		Enabled: true, Required: []string{deviceinfo.NRIPlugin}, Tolerated: deviceinfo.ToleratedPluginsAnnotation,
	}
	m.api.PrependReactor("get", "validatingadmissionpolicies",
		func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") })
	m.expectToleration(Blocks, "whether tenants may write it is unknown: forbidden")
	p, b := shippedPolicy(t)
	m.options.Cluster = fake.NewClientset(p, b)
	m.expectToleration(None, "keeps tenants from it")
}

// addToAPI adds a policy and a binding to the API server.
func (m *machine) addToAPI(
	policy *admissionv1.ValidatingAdmissionPolicy, binding *admissionv1.ValidatingAdmissionPolicyBinding,
) {
	m.t.Helper()
	admission := m.api.AdmissionregistrationV1()
	_, failed := admission.ValidatingAdmissionPolicies().Create(m.t.Context(), policy, metav1.CreateOptions{})
	_, err := admission.ValidatingAdmissionPolicyBindings().Create(m.t.Context(), binding, metav1.CreateOptions{})
	if err := errors.Join(failed, err); err != nil {
		m.t.Fatal(err)
	}
}

// expectToleration plans an enrolment, and fails the test if the fact about tolerations does not
// have this risk and these parts, or if it does not block alone.
func (m *machine) expectToleration(risk Risk, parts ...string) {
	m.t.Helper()
	report := m.enrolment().Enrol(m.t.Context(), true)
	at := slices.IndexFunc(report.Facts, func(f Fact) bool { return f.Name == "toleration" })
	if at < 0 {
		m.t.Fatalf("no fact about tolerations in %+v", report.Facts)
	}
	f := report.Facts[at]
	if f.Risk != risk || (f.Advice == "") != (risk == None) {
		m.t.Errorf("got %+v, want the risk %s", f, risk)
	}
	for _, part := range parts {
		if !strings.Contains(f.Finding, part) {
			m.t.Errorf("the finding %q lacks %q", f.Finding, part)
		}
	}
	if (report.Outcome == Refused) != (risk == Blocks) && m.options.Cluster == nil {
		m.t.Errorf("%s: %s", report.Outcome, report.Reason)
	}
}
