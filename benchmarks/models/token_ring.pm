// A ring of seven with three tokens: whoever is chosen passes its token on to either side. Is one left after two steps?
mdp
global q1 : [0..1] init 1;
global q2 : [0..1] init 1;
global q3 : [0..1] init 1;
global q4 : [0..1] init 0;
global q5 : [0..1] init 0;
global q6 : [0..1] init 0;
global q7 : [0..1] init 0;
module p1 [] q1=1 -> 0.5 : (q1'=0) & (q2'=1) + 0.5 : (q1'=0) & (q7'=1); endmodule
module p2 = p1 [q1=q2, q2=q3, q7=q1] endmodule
module p3 = p1 [q1=q3, q2=q4, q7=q2] endmodule
module p4 = p1 [q1=q4, q2=q5, q7=q3] endmodule
module p5 = p1 [q1=q5, q2=q6, q7=q4] endmodule
module p6 = p1 [q1=q6, q2=q7, q7=q5] endmodule
module p7 = p1 [q1=q7, q2=q1, q7=q6] endmodule
label "goal" = q1+q2+q3+q4+q5+q6+q7=1;
