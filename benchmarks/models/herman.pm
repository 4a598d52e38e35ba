// Herman's ring of seven: who has the token (the same bit as its neighbour) draws a bit, the others copy.
dtmc
module p1
  x1 : [0..1] init 1;
  [step] x1=x7 -> 0.5 : (x1'=0) + 0.5 : (x1'=1);
  [step] x1!=x7 -> (x1'=x7);
endmodule
module p2 = p1 [x1=x2, x7=x1] endmodule
module p3 = p1 [x1=x3, x7=x2] endmodule
module p4 = p1 [x1=x4, x7=x3] endmodule
module p5 = p1 [x1=x5, x7=x4] endmodule
module p6 = p1 [x1=x6, x7=x5] endmodule
module p7 = p1 [x1=x7, x7=x6] endmodule
formula tokens = (x1=x7 ? 1 : 0) + (x2=x1 ? 1 : 0) + (x3=x2 ? 1 : 0) + (x4=x3 ? 1 : 0) + (x5=x4 ? 1 : 0)
  + (x6=x5 ? 1 : 0) + (x7=x6 ? 1 : 0);
label "goal" = tokens=1;
