// Copyright The KubeDevice Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kubedevice/kubedevice/deploy"
	"github.com/kubedevice/kubedevice/pkg/scheduler/policies"
	"github.com/kubedevice/kubedevice/test/await"
)

// installPolicies installs deploy/policies until the test ends, and returns their names.
func installPolicies(c *cluster) []string {
	c.Helper()
	api := c.AdmissionregistrationV1()
	var names []string
	files, err := fs.Glob(deploy.Policies, "policies/*.yaml")
	if err != nil {
		c.Fatal(err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(deploy.Policies, file)
		if err != nil {
			c.Fatal(err)
		}
		var policy admissionv1.ValidatingAdmissionPolicy
		var binding admissionv1.ValidatingAdmissionPolicyBinding
		documents := bytes.SplitN(text, []byte("\n---\n"), 2)
		for i, object := range []any{&policy, &binding} {
			if err := yaml.UnmarshalStrict(documents[i], object); err != nil {
				c.Fatal(err)
			}
		}
		names = append(names, policy.Name)
		if _, err := api.ValidatingAdmissionPolicies().Create(c.Context(), &policy,
			metav1.CreateOptions{}); err != nil {
			c.Fatal(err)
		}
		if _, err := api.ValidatingAdmissionPolicyBindings().Create(c.Context(), &binding,
			metav1.CreateOptions{}); err != nil {
			c.Fatal(err)
		}
	}
	c.Cleanup(func() {
		ctx := context.Background() // the test's has ended
		c.removePolicies(ctx, names, c.policyInForce(ctx))
	})
	return names
}

// removePolicies removes policies, and waits until they are not in force any more. inForce waits
// for the last policy.
func (c *cluster) removePolicies(ctx context.Context, names []string, inForce func(want bool)) {
	c.Helper()
	api := c.AdmissionregistrationV1()
	// When the last policy is gone, all are: the API server applies policies as they were at
	// one time, and may be a second behind. The tests that follow write allocations.
	for _, name := range append(slices.Clone(names), lastPolicy) {
		// A test may have deleted them.
		_ = api.ValidatingAdmissionPolicyBindings().Delete(ctx, name, metav1.DeleteOptions{})
		_ = api.ValidatingAdmissionPolicies().Delete(ctx, name, metav1.DeleteOptions{})
	}
	inForce(false)
}

// lastPolicy is the name of the policy of policyInForce, and of the object that it denies.
const lastPolicy = "last-policy"

// policyInForce installs a policy, waits until it is in force, and returns the function that waits
// for that or for the opposite.
func (c *cluster) policyInForce(ctx context.Context) (inForce func(want bool)) {
	c.Helper()
	api := c.AdmissionregistrationV1()
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: lastPolicy},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				ResourceNames: []string{lastPolicy},
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule: admissionv1.Rule{
						APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"},
					},
				},
			}}},
			Validations: []admissionv1.Validation{{Expression: "false"}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: lastPolicy},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName:        lastPolicy,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	if _, err := api.ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if _, err := api.ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	inForce = func(want bool) {
		c.Helper()
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		what := fmt.Sprintf("policy %s to be in force: %v", lastPolicy, want)
		if err := await.Until(ctx, what, func(ctx context.Context) (bool, error) {
			_, err := c.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: lastPolicy}},
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return (err != nil) == want, nil
		}); err != nil {
			c.Error(err)
		}
	}
	inForce(true)
	return inForce
}

// Every policy is installed and read back as the API server has it, and weakened in each way that
// the API server accepts.
func TestAPolicyThatIsWeakenedIsFound(t *testing.T) {
	c := newCluster(t)
	scheduler, err := server.Client("system:kube-scheduler")
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T) []policies.Problem {
		t.Helper()
		report, err := policies.Check(t.Context(), scheduler)
		if err != nil {
			t.Fatal(err)
		}
		return report.Problems
	}
	names := installPolicies(c)
	if problems := check(t); len(problems) > 0 {
		t.Fatalf("the policies that we ship have the problems %+v", problems)
	}

	type policy = admissionv1.ValidatingAdmissionPolicy
	type binding = admissionv1.ValidatingAdmissionPolicyBinding
	kubeSystem := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{
		Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"tenant"},
	}}}
	tests := map[string]struct {
		policy  func(*policy)
		binding func(*binding)
		want    policies.Reason
	}{
		"as it was": {binding: func(b *binding) { b.Labels = map[string]string{"team": "platform"} }},
		"an action that only reports": {
			binding: func(b *binding) { b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit} },
			want:    policies.NotDenying,
		},
		"a namespace that the binding leaves out": {
			binding: func(b *binding) {
				b.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: kubeSystem}
			},
			want: policies.Narrowed,
		},
		"objects that the binding leaves out": {
			binding: func(b *binding) {
				b.Spec.MatchResources = &admissionv1.MatchResources{ObjectSelector: &metav1.LabelSelector{
					MatchLabels: map[string]string{"guarded": "true"},
				}}
			},
			want: policies.Narrowed,
		},
		"parameters of the binding": {
			binding: func(b *binding) {
				b.Spec.ParamRef = &admissionv1.ParamRef{
					Name: "none", ParameterNotFoundAction: ptr.To(admissionv1.AllowAction),
				}
			},
			want: policies.Parameters,
		},
		"a condition more": {
			policy: func(p *policy) {
				p.Spec.MatchConditions = append(p.Spec.MatchConditions,
					admissionv1.MatchCondition{Name: "never", Expression: "false"})
			},
			want: policies.MatchConditions,
		},
		"failures that are ignored": {
			policy: func(p *policy) { p.Spec.FailurePolicy = ptr.To(admissionv1.Ignore) },
			want:   policies.FailurePolicy,
		},
		"a validation that is always true": {
			policy: func(p *policy) { p.Spec.Validations[0].Expression = "true" },
			want:   policies.Validations,
		},
		"an operation that is not looked at": {
			policy: func(p *policy) {
				p.Spec.MatchConstraints.ResourceRules[0].Operations = []admissionv1.OperationType{admissionv1.Connect}
			},
			want: policies.MatchConstraints,
		},
		"a namespace that the policy leaves out": {
			policy: func(p *policy) { p.Spec.MatchConstraints.NamespaceSelector = kubeSystem },
			want:   policies.MatchConstraints,
		},
	}
	for _, name := range names {
		for what, test := range tests {
			t.Run(name+"/"+what, func(t *testing.T) {
				restore := c.editPolicy(t, name, test.policy, test.binding)
				problems := check(t)
				restore()
				if test.want == "" {
					if len(problems) > 0 {
						t.Errorf("found %+v", problems)
					}
					return
				}
				if len(problems) != 1 || problems[0].Policy != name || problems[0].Reason != test.want ||
					!strings.Contains(problems[0].NextStep(), "deploy/policies of this release") {
					t.Errorf("found %+v, want %s", problems, test.want)
				}
				if left := check(t); len(left) > 0 {
					t.Errorf("after it was put back: %+v", left)
				}
			})
		}
	}
	t.Run("a scheduler without the right to read them", func(t *testing.T) {
		other, err := server.Client("tenant")
		if err != nil {
			t.Fatal(err)
		}
		report, err := policies.Check(t.Context(), other)
		if err != nil || len(report.Problems) != len(names) {
			t.Fatalf("found %+v, error %v", report.Problems, err)
		}
		for _, p := range report.Problems {
			if p.Reason != policies.Unknown || !strings.Contains(p.NextStep(), "deploy/rbac") {
				t.Errorf("found %+v", p)
			}
		}
	})
	t.Run("a binding that is deleted", func(t *testing.T) {
		if err := c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(t.Context(), names[0],
			metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		want := []policies.Problem{{Policy: names[0], Reason: policies.Unbound, Text: "its binding is not installed"}}
		if diff := cmp.Diff(want, check(t)); diff != "" {
			t.Errorf("problems (-want +got):\n%s", diff)
		}
	})
}

// editPolicy changes a policy, its binding, or both. It returns the function that undoes that.
func (c *cluster) editPolicy(
	t *testing.T, name string, changePolicy func(*admissionv1.ValidatingAdmissionPolicy),
	changeBinding func(*admissionv1.ValidatingAdmissionPolicyBinding),
) (restore func()) {
	t.Helper()
	api := c.AdmissionregistrationV1()
	policy, err := api.ValidatingAdmissionPolicies().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding, err := api.ValidatingAdmissionPolicyBindings().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var policyVersion, bindingVersion string
	save := func(policy *admissionv1.ValidatingAdmissionPolicy, binding *admissionv1.ValidatingAdmissionPolicyBinding) {
		t.Helper()
		saved, err := api.ValidatingAdmissionPolicies().Update(t.Context(), policy, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		policyVersion = saved.ResourceVersion
		bound, err := api.ValidatingAdmissionPolicyBindings().Update(t.Context(), binding, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		bindingVersion = bound.ResourceVersion
	}
	changedPolicy, changedBinding := policy.DeepCopy(), binding.DeepCopy()
	if changePolicy != nil {
		changePolicy(changedPolicy)
	}
	if changeBinding != nil {
		changeBinding(changedBinding)
	}
	save(changedPolicy, changedBinding)
	return func() {
		t.Helper()
		policy.ResourceVersion, binding.ResourceVersion = policyVersion, bindingVersion
		save(policy, binding)
	}
}
