/* test_ucx_path.c -- the devices in what UCX prints of a connection. */
#include "tests/check_main.h"
#include "transport/ucx/ucx.h"

#define HEAD "#\n# UCP endpoint \n#\n#               peer: host1:pid4711\n"
#define TAIL                                                                                       \
	"#\n#                tag_send: 0..<egr/short>..172..<egr/bcopy>..262144..<rndv>..(inf)\n"  \
	"#            rma_bw: mds [2] rndv_rkey_size 17\n#\n"

static void expect(const char *printed, const char *lanes)
{
	char text[160] = "before";

	ck_assert_int_eq(rb_ucx_lanes_read(printed, text, sizeof(text)), lanes[0] != '\0');
	ck_assert_str_eq(text, lanes);
}

START_TEST(lanes_are_named)
{
	expect(HEAD
	       "#                 lane[0]:  1:tcp/eth0.0 md[1]          -> md[1]/tcp/sysdev[255] "
	       "rma_bw#0 am am_bw#0 wireup\n" TAIL,
	       "tcp/eth0");
	expect(HEAD
	       "#                 lane[0]:  5:rc_verbs/rxe0:1.0 md[3]   -> md[3]/ib/sysdev[255] "
	       "am am_bw#0\n"
	       "#                 lane[1]:  7:rc_verbs/rxe1:1.0 md[4]   -> md[4]/ib/sysdev[255] "
	       "rma_bw#1 am_bw#1\n" TAIL,
	       "rc_verbs/rxe0:1, rc_verbs/rxe1:1");
	expect(HEAD
	       "#                 lane[0]:  0:self/memory0.0 md[0]     -> md[0]/self/sysdev[255] "
	       "am am_bw#0\n" TAIL,
	       "self/memory0");
	/* A network device's own dots; two paths of one device; ten lanes and more. */
	expect("lane[8]: 12:tcp/eth0.100.0 md[1]\nlane[9]: 13:rc_mlx5/mlx5_0:1.0 md[2]\n"
	       "lane[10]: 13:rc_mlx5/mlx5_0:1.1 md[2]\n",
	       "tcp/eth0.100, rc_mlx5/mlx5_0:1");
}
END_TEST

START_TEST(other_text_says_nothing)
{
	expect("", "");
	expect(HEAD TAIL, "");
	expect("lane", "");
	expect("lane[", "");
	expect("lane[0", "");
	expect("lane[0]", "");
	expect("lane[0]:", "");
	expect("lane[0]: 5", "");
	expect("lane[0]: 5:", "");
	expect("lane[0]: 5:no device md[1]", "");
	expect("lane[0]: rc_verbs/mlx5_0:1.0 md[3]", "");
	/* What is split over lines is not put together. */
	expect("la\nne[0]: 5:tcp/eth0.0\n", "");
	expect("lane[0]:\n 5:tcp/eth0.0\n", "");
}
END_TEST

START_TEST(what_does_not_fit_is_left_out)
{
	char text[24];

	ck_assert(rb_ucx_lanes_read("lane[0]: 1:rc_verbs/mlx5_0:1.0 m\nlane[1]: 2:tcp/eth0.0 m\n",
				    text, sizeof(text)));
	ck_assert_str_eq(text, "rc_verbs/mlx5_0:1");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ucx path");
	TCase *tc = tcase_create("names");

	tcase_add_test(tc, lanes_are_named);
	tcase_add_test(tc, other_text_says_nothing);
	tcase_add_test(tc, what_does_not_fit_is_left_out);
	suite_add_tcase(suite, tc);
	return check_suite(suite);
}
